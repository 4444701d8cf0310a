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
#include "server/core/partition_state.h"

namespace cairn {

// ---- keys ----

inline void AppendBigEndian(std::string& out, uint64_t v, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) out.push_back(static_cast<char>(v >> shift));
}
inline uint64_t ReadBigEndian(std::string_view in) {
  uint64_t v = 0;
  for (char c : in) v = v << 8 | static_cast<uint8_t>(c);
  return v;
}

inline constexpr std::string_view kClusterIdKey = "c";
inline std::string HostedKey(JobId job) {
  std::string key = "j";
  AppendBigEndian(key, job.value, 8);
  return key;
}
inline std::string JobPrefix(JobId job) {
  std::string key = "p";
  AppendBigEndian(key, job.value, 8);
  return key;
}
inline std::string PartitionPrefix(JobId job, uint32_t partition) {
  std::string key = JobPrefix(job);
  AppendBigEndian(key, partition, 4);
  return key;
}
inline std::string KindPrefix(const PartitionConfig& c, char kind) {
  return PartitionPrefix(c.job, c.partition.value) + kind;
}
inline std::string VersionKey(const PartitionConfig& c, char kind, uint64_t version) {
  std::string key = KindPrefix(c, kind);
  AppendBigEndian(key, version, 8);
  return key;
}
inline std::string TensorKey(const PartitionConfig& c, uint64_t version, size_t tensor) {
  std::string key = VersionKey(c, 'i', version);
  AppendBigEndian(key, tensor, 1);
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
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(bytes.size() >> (8 * i)));
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(sum >> (8 * i)));
  return out + bytes;
}

inline uint64_t ReadLittleEndian(std::string_view in) {
  uint64_t v = 0;
  for (size_t i = in.size(); i-- > 0;) v = v << 8 | static_cast<uint8_t>(in[i]);
  return v;
}

// Takes a sealed message from the front of `in`. False where it is damaged.
template <typename Message>
bool Unseal(std::string_view& in, Message& message) {
  if (in.size() < kSealBytes) return false;
  const uint64_t size = ReadLittleEndian(in.substr(0, 4)), sum = ReadLittleEndian(in.substr(4, 8));
  in.remove_prefix(kSealBytes);
  if (in.size() < size || Checksum(in.data(), size) != sum) return false;
  if (!message.ParseFromArray(in.data(), static_cast<int>(size))) return false;
  in.remove_prefix(size);
  return true;
}

}  // namespace cairn
