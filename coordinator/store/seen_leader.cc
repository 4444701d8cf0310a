#include "coordinator/store/seen_leader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/rpc/address.h"

namespace cairn {

bool IsPlainText(const std::string& text) {
  return text.size() <= 300 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
}

std::optional<SeenLeader> LeaderOf(const etcdserverpb::RangeResponse& answer, const std::string& http_key) {
  SeenLeader leader;
  const v1::LeaderRecord& record = leader.record;
  if (answer.kvs().empty() || !leader.record.ParseFromString(answer.kvs(0).value())) return std::nullopt;
  if (!IsPlainText(record.address()) || !IsPlainText(record.name()) || !ParseAddress(record.address()).ok())
    return std::nullopt;
  for (const etcdserverpb::KeyValue& kv : answer.kvs()) {
    if (kv.key() == http_key && IsPlainText(kv.value())) leader.http = kv.value();
  }
  return leader;
}

}  // namespace cairn
