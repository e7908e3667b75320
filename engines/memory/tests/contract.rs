//! The memory engine keeps the contract.

#[tokio::test]
async fn the_memory_engine_keeps_the_contract() {
    flare_contract::check_store(|| async { flare_memory::open(&Default::default()).unwrap() }).await;
}

#[tokio::test]
async fn the_memory_queue_keeps_the_contract() {
    let broker = flare_memory::Broker::default();
    flare_contract::check_queue(|| async { broker.connect() }).await;
}
