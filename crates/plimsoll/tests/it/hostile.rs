//! Attacks: a file for each door. What is tried here got in once.

mod files;
