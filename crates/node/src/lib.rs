//! What a node does: takes documents in, knows streams and outlets, and brings every outlet up to date.
//!
//! It knows the ports of the core and HTTP as a client. It does not know which engine is behind the ports, nor what
//! its own API looks like on the wire.

mod clock;
mod delivery;
mod fast_map;
mod intake;
pub mod lease;
mod node;
mod registry;
pub mod settings;
mod spread;
pub mod supervisor;
mod sweeper;
mod tail;
mod tasks;
mod tokens;

pub use delivery::FilterProblem;
pub use delivery::Tested;
pub use delivery::slot::pull::{Message, ReceiptError, Settle};
pub use intake::{DocumentNews, IntakeError};
pub use node::{
    Created, DEMAND_MAX, Duty, Lag, NewOutlet, NewStream, Node, Page, QueueStatus, ReplayFrom, Resync, Rotation,
    Status, Work,
};
pub use settings::{Membership, Roles, Settings};
pub use supervisor::Supervisor;
pub use tasks::{OpenQueue, QueuePer, TaskSettings};
pub use tokens::{NewToken, Tokens};
