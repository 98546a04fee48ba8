//! What only a human does: the contract is written on somebody's machine, reviewed, and committed.

use std::{env, fs};

use anyhow::bail;

/// What CI systems set in the environment of their jobs.
const CI_VARIABLES: [&str; 14] = [
    "CI",
    "APPVEYOR",
    "BITBUCKET_BUILD_NUMBER",
    "BUILDKITE",
    "CIRCLECI",
    "CODEBUILD_BUILD_ID",
    "CONTINUOUS_INTEGRATION",
    "DRONE",
    "GITEA_ACTIONS",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
];
/// How the name of a job's cgroup begins.
const JOB_CGROUP: &str = "/capgate-";

/// Refuses to go on where no human looks at what is written. This keeps a workflow from approving itself by accident; against a
/// job that means to, it is the recording of every write to the contract that helps.
///
/// # Errors
/// In CI, and inside a job.
pub(crate) fn check(command: &str) -> anyhow::Result<()> {
    let is_set = |name: &&&str| {
        env::var_os(name).is_some_and(|value| !matches!(value.to_str(), Some("" | "0" | "false")))
    };
    if let Some(name) = CI_VARIABLES.iter().find(is_set) {
        bail!(
            "cannot {command} in CI, where no human looks at what is written ({name} is set); run it in a checkout of \
             your own, on ledgers that CI recorded, and commit the result"
        );
    }
    if inside_job() {
        bail!(
            "cannot {command} inside a job: a job does not decide what it may do; run it outside"
        );
    }
    Ok(())
}

/// Whether this process runs inside a job, as far as its own cgroup tells.
pub(crate) fn inside_job() -> bool {
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .any(|path| path.contains(JOB_CGROUP))
}
