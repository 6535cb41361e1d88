//! Where machines come from: one folder for each kind.
//!
//! Owns the list of providers, and making one of a recipe's words. A provider's settings, what it
//! needs on this machine and where it may have left something are in its folder.
//!
//! # Layout
//! - [`local`]: folders of this machine; the smallest provider, to begin another from
//! - [`ssh`]: machines that are there already, by the OpenSSH client
//! - [`docker`]: containers on one engine
//! - [`several`]: machines of several providers as one; [`dialled`]: machines that call by
//!   themselves, of a detached run

pub mod dialled;
pub mod docker;
pub mod local;
pub mod several;
pub mod ssh;

use crate::finding::{Block, Finding};
use crate::program::Program;
use crate::provider::{Ends, Fault, Provider};
use planaria_recipe::pool::providers as recipe;
use planaria_recipe::pool::{Pool, Provider as Choice};
use several::{Part, Several};
use std::sync::Arc;

/// What is known of a provider before there is one.
trait Kind: Provider + Sized + 'static {
    /// What recipes say of it.
    type Settings: Clone;

    /// Connects to nothing yet.
    fn make(settings: &Self::Settings, purpose: Purpose) -> Result<Self, Fault>;

    /// What it needs on this machine: lines of `doctor`.
    fn needs() -> Vec<Finding> {
        Vec::new()
    }

    /// What its way to a machine tells the host's process there: asked in that process.
    fn ends() -> Option<Ends> {
        None
    }

    /// Places that are asked by themselves what they hold, so that one that does not answer hides no
    /// other.
    fn places(settings: &Self::Settings) -> Vec<Place<Self::Settings>>;

    /// Whether `doctor --leaks` asks it though no recipe names it.
    const IS_ALWAYS_ASKED: bool;

    /// Whether all that the settings name on this machine is there.
    fn check_settings(settings: &Self::Settings) -> Result<(), Fault> {
        let _ = settings;
        Ok(())
    }
}

/// What a provider's machines are for.
#[derive(Debug, Clone, Default)]
pub struct Purpose {
    /// What goes to machines. Giving them back needs none.
    pub program: Option<Program>,
    /// Whether machines outlive the command.
    pub is_detached: bool,
    /// Variables with secrets, which nothing inherits.
    pub hidden: Vec<String>,
}

/// Somewhere that may hold something for runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Place<S = Choice> {
    /// The same for the same place.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Settings that lead there alone.
    pub settings: S,
    /// Whether it is asked though no recipe names it.
    pub is_always_asked: bool,
}

impl<S> Place<S> {
    /// A place that is known by its name.
    fn new(name: impl Into<String>, settings: S) -> Self {
        let name = name.into();
        Self { id: name.clone(), name, settings, is_always_asked: false }
    }
}

/// Makes everything that asks each provider.
macro_rules! providers {
    ($($variant:ident => $module:ident::$type:ident),* $(,)?) => {
        /// The provider that was chosen.
        pub fn make(choice: &Choice, purpose: Purpose) -> Result<Arc<dyn Provider>, Fault> {
            Ok(match choice {
                $(Choice::$variant(settings) => Arc::new($module::$type::make(settings, purpose)?)),*
            })
        }

        fn needs_of(choice: &Choice) -> Vec<Finding> {
            match choice {
                $(Choice::$variant(_) => $module::$type::needs()),*
            }
        }

        /// Where the machines of a choice may be, each place apart.
        pub fn places(choice: &Choice) -> Vec<Place> {
            match choice {
                $(Choice::$variant(settings) => {
                    let whole = |place: Place<recipe::$module::Settings>| Place {
                        id: place.id,
                        name: place.name,
                        settings: Choice::$variant(place.settings),
                        is_always_asked: $module::$type::IS_ALWAYS_ASKED,
                    };
                    $module::$type::places(settings).into_iter().map(whole).collect()
                })*
            }
        }

        /// The addresses of both ends of this host's channel, as far as they are known.
        pub fn ends() -> Ends {
            [$($module::$type::ends()),*].into_iter().flatten().next().unwrap_or_default()
        }

        fn check_choice(choice: &Choice) -> Result<(), Fault> {
            match choice {
                $(Choice::$variant(settings) => $module::$type::check_settings(settings)),*
            }
        }
    };
}

providers! {
    Local => local::Local,
    Ssh => ssh::Ssh,
    Docker => docker::Docker,
}

/// The provider of a pool's machines.
pub fn of(pool: &Pool, purpose: &Purpose) -> Result<Arc<dyn Provider>, Fault> {
    if pool.more.is_empty() {
        return make(&pool.supply.provider, purpose.clone());
    }
    let part = |supply: &planaria_recipe::pool::Supply| {
        let provider = make(&supply.provider, purpose.clone())?;
        Ok(Part { provider, count: supply.machine_count(pool.workers) })
    };
    let parts = pool.supplies().map(part).collect::<Result<Vec<_>, Fault>>()?;
    Ok(Arc::new(Several::new(parts)))
}

/// What each provider needs on this machine, where that is anything.
pub fn needs() -> Vec<Block> {
    let block = |choice: &Choice| Block { name: choice.name().into(), findings: needs_of(choice) };
    let mut blocks: Vec<Block> = Choice::all().iter().map(block).collect();
    blocks.retain(|block| !block.findings.is_empty());
    blocks
}

/// Whether all that a pool's settings name on this machine is there.
pub fn check_settings(pool: &Pool) -> Result<(), Fault> {
    pool.supplies().try_for_each(|supply| check_choice(&supply.provider))
}
