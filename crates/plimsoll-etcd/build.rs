//! Makes the client's messages from `proto/etcd.proto`, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/etcd.proto";
    println!("cargo:rerun-if-changed={file}");
    let described = protox::compile([file], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .compile_fds(described)?;
    Ok(())
}
