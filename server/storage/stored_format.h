// The keys of a ps' store and the sealing of its messages: the grammar of persistence.h. Only persistence.cc and tests
// include it.
//
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/digest.h"
#include "common/base/ids.h"
#include "common/base/words.h"
#include "server/core/partition_state.h"

namespace cairn {

// ---- keys ----

inline constexpr std::string_view kClusterIdKey = "c";
inline std::string HostedKey(JobId job) {
  std::string key = "j";
  AppendBigEndian(job.value, 8, &key);
  return key;
}
inline std::string JobPrefix(JobId job) {
  std::string key = "p";
  AppendBigEndian(job.value, 8, &key);
  return key;
}
inline std::string PartitionPrefix(JobId job, uint32_t partition) {
  std::string key = JobPrefix(job);
  AppendBigEndian(partition, 4, &key);
  return key;
}
inline std::string KindPrefix(const PartitionConfig& c, char kind) {
  return PartitionPrefix(c.job, c.partition.value) + kind;
}
inline std::string VersionKey(const PartitionConfig& c, char kind, uint64_t version) {
  std::string key = KindPrefix(c, kind);
  AppendBigEndian(version, 8, &key);
  return key;
}
inline std::string TensorKey(const PartitionConfig& c, uint64_t version, size_t tensor) {
  std::string key = VersionKey(c, 'i', version);
  AppendBigEndian(tensor, 1, &key);
  return key;
}
// The first key after all that begin with prefix; a prefix here never consists of 0xff alone.
inline std::string PrefixEnd(std::string prefix) {
  while (static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

// ---- sealed messages ----

inline constexpr size_t kSealBytes = 12;

template <typename Message>
std::string Seal(const Message& message) {
  const std::string bytes = message.SerializeAsString();
  std::string out;
  out.reserve(kSealBytes + bytes.size());
  const uint64_t sum = Checksum(bytes.data(), bytes.size());
  AppendLittleEndian(bytes.size(), 4, &out);
  AppendWord(sum, &out);
  return out + bytes;
}

// Takes a sealed message from the front of `in`. False: it is damaged.
template <typename Message>
bool Unseal(std::string_view& in, Message& message) {
  if (in.size() < kSealBytes) return false;
  const uint64_t size = ReadLittleEndian(in.substr(0, 4)), sum = WordAt(in, 4);
  in.remove_prefix(kSealBytes);
  if (in.size() < size || Checksum(in.data(), size) != sum) return false;
  if (!message.ParseFromArray(in.data(), static_cast<int>(size))) return false;
  in.remove_prefix(size);
  return true;
}

}  // namespace cairn
