//! Relieves nodes that stay hot while others are cool, one replica at a time. Biased to do nothing.

pub mod ewma;

pub use ewma::Ewma;
