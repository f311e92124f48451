//! Starts on an etcd that must not happen.
