// One cairn-ps behind a real socket that holds the partitions of one job.
#pragma once

#include <memory>
#include <vector>

#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {

class ExchangeTest : public testing::Test {
 public:
  static constexpr uint64_t kJob = 5, kGeneration = 3;

 protected:
  void Start(const v1::JobSpec& spec, int64_t partition_bytes, bool unix_socket = false) {
    store_ = NewMemoryKvStore();
    ps_ = std::make_unique<TestPs>(*store_, unix_socket ? dir_.path() + "/ps.sock" : "");
    host_ = HostAll(kJob, kGeneration, spec, partition_bytes);
    const auto ready = ps_->host().Host(host_);
    ASSERT_TRUE(ready.ok()) << ready.status();
    ASSERT_EQ(ready->partitions_size(), host_.partitions_size());
  }
  std::vector<v1::Route> Routes() {
    std::vector<v1::Route> routes;
    for (const auto& range : host_.partitions()) {
      v1::Route& r = routes.emplace_back();
      *r.mutable_range() = range;
      r.set_ps("ps-test");
      r.set_address(ps_->address());
    }
    return routes;
  }

  TempDir dir_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<TestPs> ps_;
  v1::HostPartitions host_;
};

}  // namespace cairn
