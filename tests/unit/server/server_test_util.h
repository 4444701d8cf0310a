// Small partitions, frames and comparisons for the tests of server/.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/storage/kv_store.h"
#include "server/core/dense_partition.h"
#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/unit/test_seed.h"

namespace cairn {

inline const DenseKind& KindOf(const PartitionConfig& c) { return dynamic_cast<const DenseKind&>(*c.kind); }
inline const DenseConfig& Dense(const PartitionConfig& c) { return DenseKind::Of(c); }
// The dense part of the configuration, to be changed in this copy only.
inline DenseConfig& Dense(PartitionConfig& c) {
  auto kind = std::make_shared<DenseKind>(c.kind == nullptr ? DenseConfig() : DenseKind::Of(c));
  c.kind = kind;
  return const_cast<DenseConfig&>(kind->dense());
}
inline const DenseContents& Dense(const PartitionState& state) { return DenseContents::Of(state); }

inline PartitionConfig TestConfig(UpdateMode mode, uint32_t replicas, int64_t size = 32) {
  PartitionConfig c;
  c.job = JobId(3);
  c.partition = PartitionId(7);
  c.generation = Generation(5);
  c.begin = 64;
  c.end = 64 + size;
  Dense(c).segments = {{0, size - 8}};
  c.replicas = replicas;
  c.mode = mode;
  c.staleness_bound = mode == UpdateMode::kBoundedStaleness ? 1 : 0;
  Dense(c).initialize = [n = size - 8](absl::Span<float> out) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(i) * 0.25f;
  };
  return c;
}

inline Buffer Filled(const PartitionConfig& c, float value) {
  Buffer b = Buffer::Allocate(c.size() * sizeof(float));
  for (float& f : b.mutable_floats()) f = value;
  return b;
}

inline Frame PushFrame(const PartitionConfig& c, uint32_t first, uint32_t count, uint64_t sequence, Buffer gradient,
                       uint64_t examples = 4, float learning_rate = 0.5f) {
  Frame f;
  f.kind = v1::ExchangeFrame::PUSH;
  f.request_id = first * 1000 + sequence;
  f.job = c.job;
  f.partition = c.partition;
  f.generation = c.generation;
  f.replica_first = ReplicaId(static_cast<int32_t>(first));
  f.replica_count = count;
  f.sequence = sequence;
  f.examples = examples;
  f.learning_rate = learning_rate;
  f.dtype = v1::FLOAT32;
  f.reply_dtype = v1::FLOAT32;
  f.payload_total = gradient.size();
  f.payload = std::move(gradient);
  return f;
}
inline Frame PushFrame(const PartitionConfig& c, uint32_t first, uint32_t count, uint64_t sequence, float gradient) {
  return PushFrame(c, first, count, sequence, Filled(c, gradient));
}

inline Frame PullFrame(const PartitionConfig& c, uint64_t request_id) {
  Frame f;
  f.kind = v1::ExchangeFrame::PULL;
  f.request_id = request_id;
  f.job = c.job;
  f.partition = c.partition;
  f.reply_dtype = v1::FLOAT32;
  return f;
}

inline bool SameBits(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Copies everything in the store: what a crash at this moment leaves.
inline std::unique_ptr<KvStore> CopyOf(KvStore& store) {
  auto copy = NewMemoryKvStore();
  KvBatch batch;
  EXPECT_TRUE(store
                  .Scan("",
                        [&](std::string_view k, std::string_view v) {
                          batch.Put(std::string(k), std::string(v));
                          return true;
                        })
                  .ok());
  EXPECT_TRUE(copy->Write(batch, true).ok());
  return copy;
}

}  // namespace cairn
