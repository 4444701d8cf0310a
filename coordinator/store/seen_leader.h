// Which coordinator leads, as etcd says. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "cairn/v1/etcd.pb.h"
#include "etcd/rpc.pb.h"

namespace cairn {

struct SeenLeader {
  v1::LeaderRecord record;
  std::string http;  // "http://host:port" of its pages; empty: it has none
};

// The leader that an answer names: its first key is the leader's, and http_key, if there, that of its pages.
// nullopt: it does not name a coordinator.
std::optional<SeenLeader> LeaderOf(const etcdserverpb::RangeResponse& answer, const std::string& http_key);

// Short and without blanks or control characters: what messages and metadata can hold.
bool IsPlainText(const std::string& text);

}  // namespace cairn
