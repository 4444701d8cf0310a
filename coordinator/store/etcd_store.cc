#include "coordinator/store/etcd_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kReadTimeout = absl::Seconds(5);
constexpr int kPageValues = 16;  // each has kChunkBytes and a little overhead at most
constexpr int kPageKeys = 1000;
constexpr size_t kDropsPerWrite = 50;

// The end of the range of keys with this prefix, which must end in '/'.
std::string EndOf(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();
  return end;
}

etcdserverpb::RequestOp PutOp(std::string key, std::string value) {
  etcdserverpb::RequestOp op;
  op.mutable_request_put()->set_key(std::move(key));
  op.mutable_request_put()->set_value(std::move(value));
  return op;
}

etcdserverpb::RequestOp DeleteOp(std::string key, std::string end = "") {
  etcdserverpb::RequestOp op;
  op.mutable_request_delete_range()->set_key(std::move(key));
  op.mutable_request_delete_range()->set_range_end(std::move(end));
  return op;
}

etcdserverpb::RequestOp ReadOp(const std::string& key) {
  etcdserverpb::RequestOp op;
  op.mutable_request_range()->set_key(key);
  return op;
}

// The only key that was read, or null.
const etcdserverpb::KeyValue* KeyOf(const etcdserverpb::TxnResponse& done, int response) {
  if (done.responses_size() <= response) return nullptr;
  const etcdserverpb::RangeResponse& read = done.responses(response).response_range();
  return read.kvs_size() == 1 ? &read.kvs(0) : nullptr;
}

}  // namespace

EtcdStore::EtcdStore(EtcdKv* etcd, std::string prefix, std::shared_ptr<const LeaderTerm> term)
    : etcd_(etcd), prefix_(std::move(prefix)), term_(std::move(term)) {}

std::string EtcdStore::StateKey(std::string_view key) const {
  return absl::StrCat(prefix_, "/state/", absl::string_view(key.data(), key.size()));
}

std::string EtcdStore::ChunkPrefix(std::string_view id) const {
  return absl::StrCat(prefix_, "/chunk/", absl::string_view(id.data(), id.size()), "/");
}

absl::Duration EtcdStore::Timeout() const {
  return std::max(absl::ZeroDuration(), std::min(term_->Left(), kReadTimeout));
}

// ---- reading ----

absl::StatusOr<etcdserverpb::RangeResponse> EtcdStore::Page(const std::string& begin, const std::string& end, int limit,
                                                            bool keys_only) {
  etcdserverpb::RangeRequest request;
  request.set_key(begin);
  request.set_range_end(end);
  request.set_limit(limit);
  request.set_keys_only(keys_only);
  CAIRN_ASSIGN_OR_RETURN(etcdserverpb::RangeResponse page, etcd_->Range(request, Timeout()));
  const std::string* last = nullptr;
  for (const etcdserverpb::KeyValue& kv : page.kvs()) {
    const bool inside = kv.key() >= begin && (end.empty() ? kv.key() == begin : kv.key() < end);
    if (!inside || (last != nullptr && kv.key() <= *last)) {
      return absl::InternalError(absl::StrFormat("etcd answers a read of \"%s\" with key \"%s\"", begin, kv.key()));
    }
    last = &kv.key();
  }
  if (page.more() && page.kvs().empty()) {
    return absl::InternalError(absl::StrFormat("etcd reports more keys after \"%s\", but sends none", begin));
  }
  return page;
}

absl::StatusOr<std::string> EtcdStore::Decode(std::string_view key, const std::string& stored) {
  const std::string name = StateKey(key);
  v1::EtcdValue value;
  if (!value.ParseFromString(stored)) return absl::DataLossError(absl::StrCat("etcd key \"", name, "\" is corrupt"));
  if (value.chunk_id().empty()) return std::move(*value.mutable_data());
  if (value.bytes() > kEtcdValueBytesMax || value.chunk_id().find('/') != std::string::npos) {
    return absl::DataLossError(absl::StrCat("etcd key \"", name, "\" names chunks that cannot be"));
  }
  std::string whole;
  const std::string prefix = ChunkPrefix(value.chunk_id());
  std::string from = prefix;
  uint64_t count = 0;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, Page(from, EndOf(prefix), kPageValues, false));
    for (const etcdserverpb::KeyValue& kv : page.kvs()) whole += kv.value();
    count += page.kvs_size();
    if (!page.more() || whole.size() > value.bytes()) break;
    from = absl::StrCat(page.kvs().rbegin()->key(), absl::string_view("\0", 1));
  }
  if (count != value.chunks() || whole.size() != value.bytes()) {
    return absl::DataLossError(
        absl::StrFormat("etcd key \"%s\" should have %d bytes in %d chunks, but has %d bytes in %d", name,
                        value.bytes(), value.chunks(), whole.size(), count));
  }
  chunks_[std::string(key)] = value.chunk_id();
  return whole;
}

absl::StatusOr<std::optional<std::string>> EtcdStore::Get(std::string_view key) {
  CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, Page(StateKey(key), "", 1, false));
  if (page.kvs().empty()) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(std::string value, Decode(key, page.kvs(0).value()));
  return std::optional<std::string>(std::move(value));
}

absl::Status EtcdStore::Scan(std::string_view prefix,
                             const std::function<bool(std::string_view key, std::string_view value)>& fn) {
  const std::string root = StateKey("");
  const std::string begin = StateKey(prefix);
  std::string from = begin;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, Page(from, EndOf(root), kPageValues, false));
    for (const etcdserverpb::KeyValue& kv : page.kvs()) {
      if (!absl::StartsWith(kv.key(), begin)) return absl::OkStatus();  // past the range
      const std::string key = kv.key().substr(root.size());
      CAIRN_ASSIGN_OR_RETURN(const std::string value, Decode(key, kv.value()));
      if (!fn(key, value)) return absl::OkStatus();
    }
    if (!page.more()) return absl::OkStatus();
    from = absl::StrCat(page.kvs().rbegin()->key(), absl::string_view("\0", 1));
  }
}

// ---- writing ----

absl::StatusOr<int64_t> EtcdStore::GuardRevision() {
  if (!guard_) {
    CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, Page(absl::StrCat(prefix_, "/guard"), "", 1, false));
    guard_ = page.kvs().empty() ? 0 : page.kvs(0).mod_revision();
  }
  return *guard_;
}

absl::Status EtcdStore::Fenced(Ops ops) {
  if (!term_->Valid()) return absl::AbortedError("this coordinator's lease lapsed: it no longer leads");
  CAIRN_ASSIGN_OR_RETURN(const int64_t guard_revision, GuardRevision());
  const std::string guard = absl::StrCat(prefix_, "/guard");
  const std::string mark = absl::StrFormat("%d/%d", term_->create_revision, ++writes_);
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& leader = *request.add_compare();
  leader.set_target(1);  // CREATE
  leader.set_key(term_->leader_key);
  leader.set_create_revision(term_->create_revision);
  etcdserverpb::Compare& last = *request.add_compare();
  last.set_target(2);  // MOD
  last.set_key(guard);
  last.set_mod_revision(guard_revision);
  for (etcdserverpb::RequestOp& op : ops) *request.add_success() = std::move(op);
  *request.add_success() = PutOp(guard, mark);
  *request.add_failure() = ReadOp(term_->leader_key);
  *request.add_failure() = ReadOp(guard);
  CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse done, etcd_->Txn(request, Timeout()));
  if (done.succeeded()) {
    guard_ = done.header().revision();
    return absl::OkStatus();
  }
  const etcdserverpb::KeyValue* now_leads = KeyOf(done, 0);
  const etcdserverpb::KeyValue* now_guard = KeyOf(done, 1);
  if (now_leads == nullptr || now_leads->create_revision() != term_->create_revision) {
    return absl::AbortedError("this coordinator lost its lease in etcd: it no longer leads");
  }
  if (now_guard != nullptr && now_guard->value() == mark) {  // an earlier attempt was carried out
    guard_ = now_guard->mod_revision();
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrFormat("another process writes below \"%s\" in etcd: key \"%s\" has changed", prefix_, guard));
}

absl::StatusOr<std::string> EtcdStore::WriteChunks(std::string_view value) {
  const std::string id = absl::StrFormat("%016x-%d", term_->create_revision, ++chunked_values_);
  for (size_t i = 0; i * kChunkBytes < value.size(); ++i) {
    std::string key = absl::StrFormat("%s%08d", ChunkPrefix(id), i);
    CAIRN_RETURN_IF_ERROR(Fenced({PutOp(std::move(key), std::string(value.substr(i * kChunkBytes, kChunkBytes)))}));
  }
  return id;
}

absl::StatusOr<EtcdStore::Changes> EtcdStore::ChangesOf(const KvBatch& batch) {
  Changes changes;
  for (const KvBatch::Op& op : batch.ops()) {
    if (const auto* put = std::get_if<KvBatch::PutOp>(&op)) {
      std::string value = put->head;
      value.append(reinterpret_cast<const char*>(put->body.data()), put->body.size());
      changes[put->key] = std::move(value);
    } else if (const auto* gone = std::get_if<KvBatch::DeleteOp>(&op)) {
      changes[gone->key] = std::nullopt;
    } else {
      return absl::InvalidArgumentError("the coordinator's store in etcd deletes no ranges");
    }
  }
  if (changes.size() > kEtcdChangesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d changes in one write to etcd, at most %d are possible", changes.size(), kEtcdChangesMax));
  }
  return changes;
}

absl::Status EtcdStore::Write(const KvBatch& batch, bool) {
  CAIRN_ASSIGN_OR_RETURN(Changes changes, ChangesOf(batch));
  size_t inline_bytes = 0;
  std::vector<std::pair<size_t, std::string>> by_size;
  for (const auto& [key, value] : changes) {
    if (!value) continue;
    if (value->size() > kEtcdValueBytesMax) {
      return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is of %d bytes; at most %d can be kept in etcd", key,
                                                        value->size(), kEtcdValueBytesMax));
    }
    inline_bytes += value->size();
    by_size.emplace_back(value->size(), key);
  }
  std::sort(by_size.rbegin(), by_size.rend());
  std::map<std::string, std::string> new_chunks;
  for (const auto& [size, key] : by_size) {
    if (inline_bytes <= kEtcdInlineBytesMax) break;
    CAIRN_ASSIGN_OR_RETURN(new_chunks[key], WriteChunks(*changes[key]));
    inline_bytes -= size;
  }

  Ops ops;
  for (auto& [key, value] : changes) {
    if (auto old = chunks_.find(key); old != chunks_.end()) {
      const std::string prefix = ChunkPrefix(old->second);
      ops.push_back(DeleteOp(prefix, EndOf(prefix)));
    }
    if (!value) {
      ops.push_back(DeleteOp(StateKey(key)));
      continue;
    }
    v1::EtcdValue stored;
    if (auto chunked = new_chunks.find(key); chunked != new_chunks.end()) {
      stored.set_chunk_id(chunked->second);
      stored.set_chunks(static_cast<uint32_t>((value->size() + kChunkBytes - 1) / kChunkBytes));
      stored.set_bytes(value->size());
    } else {
      stored.set_data(*std::move(value));
    }
    ops.push_back(PutOp(StateKey(key), stored.SerializeAsString()));
  }
  CAIRN_RETURN_IF_ERROR(Fenced(std::move(ops)));
  for (const auto& [key, value] : changes) chunks_.erase(key);
  chunks_.insert(new_chunks.begin(), new_chunks.end());
  return absl::OkStatus();
}

absl::Status EtcdStore::DropOrphans() {
  std::set<std::string> named, orphans;
  for (const auto& [key, id] : chunks_) named.insert(id);
  const std::string root = absl::StrCat(prefix_, "/chunk/");
  std::string from = root;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, Page(from, EndOf(root), kPageKeys, true));
    for (const etcdserverpb::KeyValue& kv : page.kvs()) {
      const std::string rest = kv.key().substr(root.size());
      const std::string id = rest.substr(0, rest.find('/'));
      if (!id.empty() && id.size() < rest.size() && !named.contains(id)) orphans.insert(id);
    }
    if (!page.more()) break;
    from = absl::StrCat(page.kvs().rbegin()->key(), absl::string_view("\0", 1));
  }
  while (!orphans.empty()) {
    Ops ops;
    while (!orphans.empty() && ops.size() < kDropsPerWrite) {
      const std::string prefix = ChunkPrefix(orphans.extract(orphans.begin()).value());
      ops.push_back(DeleteOp(prefix, EndOf(prefix)));
    }
    CAIRN_RETURN_IF_ERROR(Fenced(std::move(ops)));
  }
  return absl::OkStatus();
}

}  // namespace cairn
