use super::{ImageId, Processes, Program, RECENT};
use crate::story::task;

fn chain(processes: &Processes, id: ImageId) -> Vec<u32> {
    processes.chain(id).map(|image| image.pid).collect()
}

fn program(name: &str) -> Program {
    Program::Memfd(name.as_bytes().into())
}

#[test]
fn a_child_runs_what_its_parent_runs_until_it_executes_something() {
    let mut processes = Processes::new(1 << 20);
    let shell = processes.executed(&task(1), program("sh"), &[b"sh".to_vec(), b"-c".to_vec()]);
    processes.forked(&task(1), &task(2));
    let child = processes.image_of(&task(2));
    assert_eq!(processes.get(child).expect("known").program, program("sh"));
    let tool = processes.executed(&task(2), program("cc"), &[]);
    assert_eq!(chain(&processes, tool), [2, 1]);
    assert_eq!(processes.get(tool).expect("known").program, program("cc"));
    assert_eq!(processes.get(child).expect("kept").program, program("sh"));
    assert_eq!(&*processes.get(shell).expect("kept").argv, b"sh\0-c\0");
}

#[test]
fn records_in_another_order_make_the_same_tree() {
    let mut processes = Processes::new(1 << 20);
    let tool = processes.executed(&task(2), program("cc"), &[]);
    processes.executed(&task(1), program("sh"), &[]);
    processes.forked(&task(1), &task(2));
    assert_eq!(chain(&processes, tool), [2, 1]);
    assert_eq!(processes.get(tool).expect("known").program, program("cc"));
}

#[test]
fn a_process_id_that_is_used_again_is_another_process() {
    let mut processes = Processes::new(1 << 20);
    let first = processes.image_of(&task(5));
    let again = crate::event::Task {
        start_ns: 999,
        ..task(5)
    };
    assert_ne!(processes.image_of(&again), first);
    assert_eq!(processes.image_of(&again), processes.last_image(5));
}

#[test]
fn ended_processes_are_known_for_a_while() {
    let mut processes = Processes::new(1 << 20);
    for pid in 1..=u32::try_from(RECENT + 1).expect("small") {
        processes.image_of(&task(pid));
        processes.exited(&task(pid), 0);
        processes.exited(&task(pid), 0);
    }
    assert!(!processes.is_member(1));
    assert!(processes.is_member(2));
}

#[test]
fn a_program_has_the_status_of_the_process_that_ended_with_it() {
    for (code, status) in [
        (0, 0),
        (3 << 8, 3),
        (255 << 8, 255),
        (9, 137),
        (0x80 | 11, 139),
    ] {
        let mut processes = Processes::new(1 << 20);
        let shell = processes.executed(&task(1), program("sh"), &[]);
        processes.forked(&task(1), &task(2));
        let gone = processes.executed(&task(2), program("env"), &[]);
        let last = processes.executed(&task(2), program("cc"), &[]);
        processes.exited(&task(2), code);
        let status_of = |id| processes.get(id).and_then(|image| image.status);
        assert_eq!(status_of(last), Some(status), "{code:#x}");
        // The one went on as another program, the other still runs.
        assert_eq!((status_of(gone), status_of(shell)), (None, None));
    }
}

#[test]
fn a_late_fork_does_not_inherit_how_its_parent_ended() {
    let mut processes = Processes::new(1 << 20);
    processes.executed(&task(1), program("sh"), &[]);
    processes.exited(&task(1), 9);
    processes.forked(&task(1), &task(2));
    let child = processes.last_image(2);
    assert_eq!(processes.get(child).and_then(|image| image.status), None);
}

#[test]
fn what_nobody_needs_is_swept() {
    let mut processes = Processes::new(1 << 20);
    let kept = processes.executed(&task(1), program("sh"), &[]);
    processes.forked(&task(1), &task(2));
    let needed = processes.executed(&task(2), program("cc"), &[]);
    let passing = processes.executed(&task(2), program("ld"), &[]);
    let last = processes.executed(&task(2), program("ar"), &[]);
    processes.sweep([needed].into_iter());
    assert!(processes.get(passing).is_none());
    assert_eq!(chain(&processes, needed), [2, 1]);
    assert_eq!(chain(&processes, last), [2, 1]);
    assert!(processes.get(kept).is_some());
    let next = processes.executed(&task(3), program("x"), &[]);
    assert!(processes.get(next).is_some_and(|image| image.pid == 3));
}

#[test]
fn memory_is_bounded() {
    let mut processes = Processes::new(4000);
    for pid in 1..1000 {
        processes.executed(&task(pid), program("x"), &[vec![b'a'; 100]]);
    }
    let cut = processes.last_image(60);
    assert!(processes.get(cut).is_none_or(|image| image.argv.is_empty()));
    assert_eq!(processes.last_image(999), ImageId::UNKNOWN);
    assert!(
        processes.is_member(999),
        "membership is known without an image"
    );
}

#[test]
fn a_packet_without_a_process_has_no_image() {
    let mut processes = Processes::new(1 << 20);
    assert_eq!(processes.image_of(&task(0)), ImageId::UNKNOWN);
    assert!(!processes.is_member(0));
}
