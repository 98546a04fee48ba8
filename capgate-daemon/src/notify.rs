//! What the service manager is told: ready, alive, stopping. Silent when there is none.

use std::time::Duration;

use sd_notify::NotifyState;

/// The service serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The main loop runs.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The service ends by itself, in order.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How often [`alive`] has to be said: half of what the service manager waits; `None` when it does not watch.
#[must_use]
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|patience| patience / 2)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot talk to the service manager");
    }
}
