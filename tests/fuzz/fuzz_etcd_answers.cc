// etcd's answers to the coordinator's store, with any field altered, and stored values that are not the store's: an
// error, or what the answer says. Before the first such, the store holds what was written, whichever term wrote it.
//
//   input := op*
//   op    := 0 1 put key:u8 size:u8 | 2 delete key:u8 | 3 get key:u8 | 4 scan | 5 drop the orphans
//          | 6 a new term | 7 the next answer is altered: after:u8 n:u8 alterations
//          | 8 a stored value is altered: which:u8 alterations
//          | 9 a stored value is other bytes: which:u8 Block
//          | 10 who leads: altered:u8 (modulo 2; then n:u8 alterations of the record)
//          n:u8 alterations of the answer
#include <map>

#include "coordinator/store/etcd_store.h"
#include "coordinator/store/seen_leader.h"
#include "tests/fuzz/alter.h"
#include "tests/unit/coordinator/etcd_model.h"

namespace cairn {
namespace {

// Answers as etcd does, but one answer is altered.
class AlteredEtcd : public EtcdKv {
 public:
  explicit AlteredEtcd(ByteSource& in) : in_(in) {}

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration) override {
    CAIRN_CHECK(++calls_ < 2000, "reads without end");
    absl::StatusOr<etcdserverpb::RangeResponse> answer = model.Range(request);
    if (answer.ok() && Due()) AlterSome(in_, &*answer);
    return answer;
  }
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request, absl::Duration) override {
    CAIRN_CHECK(++calls_ < 2000, "writes without end");
    absl::StatusOr<etcdserverpb::TxnResponse> answer = model.Txn(request);
    if (answer.ok() && Due()) AlterSome(in_, &*answer);
    return answer;
  }
  void AlterAfter(size_t answers) { due_in_ = static_cast<int>(answers) + 1; }
  void BeginOp() { calls_ = 0; }

  EtcdModel model;
  bool altered = false;  // also what is stored

 private:
  bool Due() {
    const bool due = due_in_ > 0 && --due_in_ == 0;
    altered = altered || due;
    return due;
  }

  ByteSource& in_;
  int due_in_ = 0, calls_ = 0;
};

class Coordinators {
 public:
  explicit Coordinators(ByteSource& in) : in_(in), etcd_(in) { BeginTerm(); }

  void Run() {
    for (int ops = 0; ops < 64 && !in_.empty(); ++ops) Op();
    if (etcd_.altered) return;
    BeginTerm();
    CheckScan();
  }

 private:
  static constexpr char kPrefix[] = "p";

  std::string Key() { return "job/" + std::to_string(in_.Below(4)); }

  void BeginTerm() {
    etcd_.BeginOp();
    etcd_.model.Delete("p/leader");  // a term's key is created anew
    etcd_.model.Put("p/leader", "me");
    auto term = std::make_shared<LeaderTerm>("p/leader", etcd_.model.CreateRevision("p/leader"), 7, &clock_);
    term->RenewUntil(absl::InfiniteFuture());
    store_ = std::make_unique<EtcdStore>(&etcd_, kPrefix, std::move(term));
    Scanned scanned;  // a term begins so
    const absl::Status status = Scan(scanned);
    CAIRN_CHECK(status.ok() || etcd_.altered, status.ToString());
  }

  using Scanned = std::map<std::string, std::string>;
  absl::Status Scan(Scanned& into) {
    std::string last;
    return store_->Scan("", [&](std::string_view key, std::string_view value) {
      CAIRN_CHECK(last.empty() || key > last, "keys out of order");
      CAIRN_CHECK(value.size() <= kEtcdValueBytesMax + EtcdStore::kChunkBytes, "a value beyond its bound");
      last = std::string(key);
      into[last] = std::string(value);
      return true;
    });
  }

  void CheckScan() {
    Scanned scanned;
    const absl::Status status = Scan(scanned);
    if (etcd_.altered) return;
    MustBeOk(status);
    CAIRN_CHECK(scanned == written_, "the store holds something else");
  }

  // After an error it is not known what is stored.
  void Write(const KvBatch& batch, const std::string& key, std::optional<std::string> value) {
    const absl::Status status = store_->Write(batch, true);
    if (!status.ok()) {
      CAIRN_CHECK(etcd_.altered, status.ToString());
      BeginTerm();
    } else if (value) {
      written_[key] = *std::move(value);
    } else {
      written_.erase(key);
    }
  }

  void Put() {
    static constexpr size_t kSizes[] = {0, 3, 100, EtcdStore::kChunkBytes + 9, 2 * EtcdStore::kChunkBytes};
    const std::string key = Key();
    const size_t size = in_.Byte();
    std::string value(kSizes[size < 0xf0 ? size % 3 : size % 5], static_cast<char>('a' + size % 16));
    KvBatch batch;
    batch.Put(key, value);
    Write(batch, key, std::move(value));
  }

  void Delete() {
    const std::string key = Key();
    KvBatch batch;
    batch.Delete(key);
    Write(batch, key, std::nullopt);
  }

  void Get() {
    const std::string key = Key();
    const auto value = store_->Get(key);
    if (etcd_.altered) return;
    MustBeOk(value.status());
    const auto it = written_.find(key);
    CAIRN_CHECK(value->has_value() == (it != written_.end()) && (!*value || **value == it->second), "another value");
  }

  void AlterStored(bool by_field) {
    const std::vector<std::string> keys = etcd_.model.Keys("p/state/");
    const size_t which = in_.Byte();
    if (keys.empty()) return;
    const std::string& key = keys[which % keys.size()];
    etcd_.altered = true;
    v1::EtcdValue value;
    if (!by_field) return etcd_.model.Put(key, std::string(in_.Block()));
    value.ParseFromString(*etcd_.model.Get(key));
    AlterSome(in_, &value);
    etcd_.model.Put(key, value.SerializeAsString());
  }

  void ReadLeader() {
    v1::LeaderRecord record;
    record.set_name("coordinator-1");
    record.set_address("host:7070");
    if (in_.Below(2) == 1) AlterSome(in_, &record);
    etcdserverpb::RangeResponse answer;
    for (const char* key : {"p/leader", "p/leader-http"}) {
      etcdserverpb::KeyValue& kv = *answer.add_kvs();
      kv.set_key(key);
      kv.set_value("http://host:7071");
    }
    answer.mutable_kvs(0)->set_value(record.SerializeAsString());
    AlterSome(in_, &answer);
    const std::optional<SeenLeader> leader = LeaderOf(answer, "p/leader-http");
    if (!leader) return;
    for (const std::string* text : {&leader->record.name(), &leader->record.address(), &leader->http})
      CAIRN_CHECK(IsPlainText(*text), "a leader that cannot be named");
  }

  void Op() {
    etcd_.BeginOp();
    switch (in_.Below(11)) {
      case 0:
      case 1: return Put();
      case 2: return Delete();
      case 3: return Get();
      case 4: return CheckScan();
      case 5:
        if (const absl::Status status = store_->DropOrphans(); !status.ok()) {
          CAIRN_CHECK(etcd_.altered, status.ToString());
          BeginTerm();
        }
        return;
      case 6: return BeginTerm();
      case 7: return etcd_.AlterAfter(in_.Below(8));
      case 8: return AlterStored(true);
      case 9: return AlterStored(false);
      case 10: return ReadLeader();
    }
  }

  ByteSource& in_;
  RealClock clock_;
  AlteredEtcd etcd_;
  std::unique_ptr<EtcdStore> store_;
  Scanned written_;
};

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::ByteSource in(data, size);
  cairn::Coordinators(in).Run();
  return 0;
}
