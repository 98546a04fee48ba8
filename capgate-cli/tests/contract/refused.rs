//! What a suite reaches with the operator's identity, and how the contract keeps it from that or tells of it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

use capgate_common::evidence::Column;

use crate::{
    project::{Done, PYTHON, Project, finish, serve},
    service::Service,
};

const CONTRACT: &str = "tests/capability.ledger.json";

/// A contract that ignores what Python compiles and what the provider does, with more keys.
fn contract(keys: &str) -> String {
    format!(
        r#"{{"allow_net": [], "cpu_budget": 30, "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "ignore_writes": ["**/__pycache__/**", "$TMPDIR/**"], {keys}}}"#
    )
}

/// A project with a provider's command line, which records who it served, first on the search path.
struct Cloud(Project);

impl Cloud {
    fn new() -> Self {
        let project = Project::new();
        let bin = project.beside("tmp/bin");
        fs::create_dir(&bin).unwrap();
        let served = project.beside("tmp/served");
        fs::write(&served, "").unwrap();
        let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", served.display());
        fs::write(bin.join("az"), script).unwrap();
        fs::set_permissions(bin.join("az"), fs::Permissions::from_mode(0o755)).unwrap();
        Self(project)
    }

    fn az(&self) -> PathBuf {
        self.0.beside("tmp/bin/az")
    }

    fn contract(&self, keys: &str) {
        self.0.repository.write(CONTRACT, &contract(keys));
    }

    /// How often the provider served.
    fn served(&self) -> usize {
        let served = self.0.beside("tmp/served");
        fs::read_to_string(served).unwrap().lines().count()
    }

    /// Runs a command as an operator would: with an identity, and the provider's program first on the path.
    fn run(&self, service: &Service, options: &[&str], command: &[&str]) -> Done {
        let mut capgate = self.0.command(service.client());
        let path = format!("{}:/usr/bin:/bin", self.0.beside("tmp/bin").display());
        capgate
            .env("PATH", path)
            .env("AZ_TOKEN", "an identity")
            .env("AZ_PROFILE", "the operator's")
            .args(["run", "--socket"])
            .arg(service.socket())
            .args(options)
            .arg("--")
            .args(command);
        finish(&mut capgate)
    }

    /// The reaches of the last run.
    fn reaches(&self) -> Vec<String> {
        let reaches = self.0.ledger().recording.reaches;
        reaches.unwrap().into_iter().collect()
    }
}

/// Code that asks a provider when it has an identity, and the test that it refuses without one. It unsets nothing.
fn suite(cloud: &Cloud) {
    let repository = &cloud.0.repository;
    repository.write(
        "cloud.py",
        "import os, subprocess\n\
         class Refused(Exception): pass\n\
         def create():\n\
         \x20   if not {'AZ_TOKEN', 'AZ_PROFILE'} & set(os.environ): raise Refused('no identity')\n\
         \x20   subprocess.run(['az', 'vm', 'create'], check=True)\n",
    );
    repository.write(
        "tests/test_cloud.py",
        "import unittest, cloud\n\
         class Cloud(unittest.TestCase):\n\
         \x20   def test_refused_without_an_identity(self):\n\
         \x20       with self.assertRaises(cloud.Refused): cloud.create()\n",
    );
}

const UNIT: [&str; 5] = [PYTHON, "-m", "unittest", "-q", "tests.test_cloud"];

#[test]
fn a_unit_that_reaches_the_provider_is_named_and_the_seal_keeps_it_from_that() {
    let service = serve();
    let cloud = Cloud::new();
    suite(&cloud);
    let refuse = r#""refuse": ["exec:az"]"#;

    // Without the seal it is served, and the gate says which unit did it.
    cloud.contract(refuse);
    let az = format!("exec:{}", cloud.az().display());
    cloud
        .run(&service, &["--evidence", "evidence.json"], &UNIT)
        .exits(120)
        .says("capgate: reach, also: job-failed (")
        .says(&format!("+ `{az}`"))
        .says(&format!("{} vm create", cloud.az().display()))
        .says("-m unittest -q tests.test_cloud")
        .says("nobody can accept this");
    assert_eq!((cloud.served(), cloud.reaches()), (1, vec![az.clone()]));
    let evidence = cloud.0.evidence("evidence.json");
    let reach = evidence
        .entries
        .iter()
        .find(|entry| entry.column == Column::Reaches);
    let chain = &reach.unwrap().by;
    assert!(
        chain
            .iter()
            .any(|process| process.argv.contains(&"tests.test_cloud".to_owned())),
        "{chain:?}"
    );
    assert!(evidence.sealed.is_empty());

    // With it the unit refuses as it should.
    cloud.contract(&format!(r#"{refuse}, "seal_env": ["AZ_*"]"#));
    cloud
        .run(&service, &["--evidence", "evidence.json"], &UNIT)
        .exits(0)
        .says("capgate: sealed 2 names by 1 pattern\n")
        .says("capgate: match (")
        .leaves_out("an identity");
    assert_eq!((cloud.served(), cloud.reaches()), (1, Vec::new()));
    let sealed = cloud.0.evidence("evidence.json").sealed;
    assert_eq!(sealed, ["AZ_PROFILE", "AZ_TOKEN"]);

    // One name less turns it red again.
    cloud.contract(&format!(r#"{refuse}, "seal_env": ["AZ_TOKEN"]"#));
    cloud
        .run(&service, &[], &UNIT)
        .exits(120)
        .says("capgate: sealed 1 name by 1 pattern\n")
        .says("capgate: reach, also: job-failed (");
    assert_eq!(cloud.served(), 2);
}

#[test]
fn every_way_to_the_program_is_a_reach() {
    let service = serve();
    let cloud = Cloud::new();
    cloud.contract(r#""refuse": ["exec:az"], "scratch": ["s"]"#);
    fs::create_dir(cloud.0.path("s")).unwrap();
    symlink(cloud.az(), cloud.0.path("s/link")).unwrap();
    let az = cloud.az().display().to_string();
    let reach = format!("exec:{az}");
    let python = format!("import os; os.execve('{az}', ['innocent'], {{}})");
    let copy = format!("cp {az} s/copy; s/copy; test -e s/copy");
    let hard = format!("ln {az} s/hard; s/hard");
    let away = format!("mv {az} {az}.old; {az}.old");
    let within = format!("cd /; sh {}", &az[1..]);
    let interpreted = format!("exec sh -e {az} x");
    let ways: [&[&str]; 12] = [
        &["az", "login"],
        &[&az],
        &["s/link"],
        &["env", "-i", &az],
        &["sh", "-c", "az login; exit 3"],
        &["sh", "-c", "exec az"],
        &[PYTHON, "-c", &python],
        &["sh", "-c", &copy],
        &["sh", "-c", &hard],
        &["sh", "-c", &within],
        &["sh", "-c", &interpreted],
        &["sh", "-c", &away],
    ];
    // Not one of them: only looked at, and another program with its name for an argument.
    for script in [
        "command -v az; cat \"$(command -v az)\"; ls -l s/link",
        "sh -c 'true' az; python3 -c 1 az; echo az",
    ] {
        cloud.run(&service, &[], &["sh", "-c", script]).exits(0);
        assert_eq!(cloud.reaches(), [""; 0], "{script}");
    }
    for (index, way) in ways.iter().enumerate() {
        cloud.run(&service, &[], way).exits(120).says("reach");
        assert_eq!(cloud.reaches(), [&*reach], "{way:?}");
        assert_eq!(cloud.served(), index + 1, "{way:?}");
    }
}

#[test]
fn a_compiled_program_is_known_in_a_copy_and_when_it_may_not_run() {
    let service = serve();
    let cloud = Cloud::new();
    cloud.contract(r#""refuse": ["exec:az"], "scratch": ["s"]"#);
    fs::create_dir(cloud.0.path("s")).unwrap();
    fs::copy("/usr/bin/true", cloud.az()).unwrap();
    let az = cloud.az().display().to_string();
    let reach = format!("exec:{az}");
    cloud
        .run(
            &service,
            &[],
            &["bash", "-c", &format!("cp {az} s/x; exec -a innocent s/x")],
        )
        .exits(120);
    assert_eq!(cloud.reaches(), [&*reach]);
    fs::set_permissions(cloud.az(), fs::Permissions::from_mode(0o644)).unwrap();
    cloud
        .run(&service, &[], &[&az])
        .exits(120)
        .says("command not executable, also: reach")
        .says(&format!("+ `{reach}`"));
    // A program of another content and the same size is another one.
    fs::set_permissions(cloud.az(), fs::Permissions::from_mode(0o755)).unwrap();
    let other = fs::read(cloud.az()).unwrap();
    fs::write(cloud.0.path("s/other"), &other).unwrap();
    let mut changed = other;
    *changed.last_mut().unwrap() ^= 1;
    fs::write(cloud.0.path("s/changed"), &changed).unwrap();
    for name in ["s/other", "s/changed"] {
        let path = cloud.0.path(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    cloud.run(&service, &[], &["s/changed"]).exits(0);
    cloud.run(&service, &[], &["s/other"]).exits(120);
}

#[test]
fn a_program_that_refuses_is_a_reach_and_a_fixture_before_it_hides_none() {
    let service = serve();
    let cloud = Cloud::new();
    cloud.contract(
        r#""refuse": ["exec:az"], "refuse_shims": true, "allow_exec": ["/usr/bin/*", "/bin/*"]"#,
    );
    cloud
        .run(&service, &[], &["sh", "-c", "az login; test $? = 97"])
        .exits(120)
        .says("capgate: az is refused by the contract\n")
        .says("capgate: reach (");
    assert_eq!(
        (cloud.reaches(), cloud.served()),
        (vec!["exec:az".to_owned()], 0)
    );
    let recorded = cloud.0.ledger().recording;
    assert!(recorded.write_paths.is_empty());
    assert!(
        recorded.execs.iter().all(|it| !it.contains("capgate-")),
        "{:?}",
        recorded.execs
    );
    // A test's own one.
    cloud
        .0
        .repository
        .write("fixtures/az", "#!/bin/sh\nexit 0\n");
    let fixture = cloud.0.path("fixtures/az");
    fs::set_permissions(fixture, fs::Permissions::from_mode(0o755)).unwrap();
    cloud
        .run(
            &service,
            &[],
            &["sh", "-c", "PATH=$PWD/fixtures:$PATH; az login"],
        )
        .exits(120)
        .says("reach");
    assert_eq!(cloud.reaches(), ["exec:fixtures/az"]);
    assert_eq!(cloud.served(), 0);
}

#[test]
fn a_reach_cannot_be_accepted_and_a_branch_cannot_unseal_itself() {
    let service = serve();
    let cloud = Cloud::new();
    cloud.contract(r#""refuse": ["exec:az"], "seal_env": ["AZ_*"]"#);
    cloud.0.repository.commit("the contract");
    cloud
        .0
        .repository
        .git(&["checkout", "--quiet", "-b", "patch"]);
    cloud.contract(r#""seal_env": []"#);
    cloud.0.repository.commit("unsealed");
    let base = ["--base", "main"];
    cloud
        .run(&service, &base, &["sh", "-c", "env; az"])
        .exits(120)
        .says("capgate: sealed 2 names by 1 pattern\n")
        .says("capgate: reach (")
        .says("- refuse: `exec:az`")
        .says("- seal_env: `AZ_*`")
        .leaves_out("an identity");
    let ledger = "tests/capability.actual.json";
    for contract in [CONTRACT, "main.json"] {
        let text = cloud
            .0
            .repository
            .git(&["show", "main:tests/capability.ledger.json"]);
        cloud.0.repository.write("main.json", &text);
        cloud
            .0
            .capgate(&["accept", ledger, contract, "--writes"])
            .exits(125)
            .says("nobody can accept that, whatever else is allowed");
        // Whatever it says now.
        cloud
            .0
            .capgate(&["check", ledger, contract])
            .exits(120)
            .says("reach");
    }
    // A ledger of a job that nobody watched for this says nothing about it.
    cloud.contract(r#""seal_env": []"#);
    cloud.run(&service, &[], &["true"]).exits(0);
    cloud
        .0
        .capgate(&["check", ledger, "main.json"])
        .exits(121)
        .says("recorded without");
}

#[test]
fn a_job_that_is_only_recorded_tells_its_reaches_and_passes() {
    let service = serve();
    let cloud = Cloud::new();
    cloud.contract(r#""refuse": ["exec:az", "write:$HOME/.ssh/**"]"#);
    cloud
        .run(
            &service,
            &["--record"],
            &[
                "sh",
                "-c",
                "az; mkdir ~/.ssh; echo > ~/.ssh/id; rm -r ~/.ssh",
            ],
        )
        .exits(0)
        .says("capgate: recorded")
        .says("the job reached for it");
    let az = format!("exec:{}", cloud.az().display());
    assert_eq!(cloud.reaches()[0], az);
    assert_eq!(cloud.reaches().len(), 2);
}

#[test]
fn accepting_something_else_leaves_what_is_sealed_and_refused_as_it_is() {
    let service = serve();
    let cloud = Cloud::new();
    let keys = r#""seal_env": ["AZ_*"], "refuse": ["exec:az", "net:192.0.2.1:*"], "refuse_shims": true, "write_paths": []"#;
    cloud.contract(keys);
    let script = "test -z \"$AZ_TOKEN\" && echo > new";
    cloud
        .run(&service, &[], &["sh", "-c", script])
        .exits(120)
        .says("capgate: writes (");
    let ledger = "tests/capability.actual.json";
    cloud
        .0
        .capgate(&["accept", ledger, "--write", "new"])
        .exits(0)
        .leaves_out("refuse");
    let after = cloud.0.contract_text();
    let keys = keys.split(", \"write_paths\"").next().unwrap();
    assert!(after.contains(keys), "{after}");
    cloud.run(&service, &[], &["sh", "-c", script]).exits(0);
    cloud
        .0
        .capgate(&["init", "--force", "--from", ledger])
        .exits(0);
    let written = cloud.0.contract();
    assert!(written.seal_env.is_empty() && written.refuse.is_empty() && !written.refuse_shims);
}
