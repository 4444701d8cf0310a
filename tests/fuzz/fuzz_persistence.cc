// A ps' store with altered bytes, and with well-sealed messages of altered content: what is read back is whole or an
// error that says what is damaged; a state that is taken can be served.
//
//   input := mode:u8 updates:u8 image_at:u8 damage*
//   damage := key:u8 kind:u8 arguments
#include <cstring>
#include <vector>

#include "common/base/digest.h"
#include "common/storage/kv_store.h"
#include "server/storage/persistence.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/partition_seed.h"

namespace cairn {
namespace {

constexpr size_t kSealBytes = 12;  // size:u32 xxh3:u64, see persistence.h

std::string Seal(const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  return ByteSink().Number(bytes.size(), 4).Number(Checksum(bytes.data(), bytes.size()), 8).Raw(bytes).bytes();
}

// Alters the sealed message that the value begins with, if it is one.
template <typename Message>
std::string AlterSealed(ByteSource& in, const std::string& value) {
  if (value.size() < kSealBytes) return value;
  const size_t size = ByteSource(reinterpret_cast<const uint8_t*>(value.data()), 4).Number(4);
  Message message;
  if (size > value.size() - kSealBytes || !message.ParseFromArray(value.data() + kSealBytes, static_cast<int>(size))) {
    return value;
  }
  AlterSome(in, &message);
  return Seal(message) + value.substr(kSealBytes + size);
}

std::string AlterMessage(ByteSource& in, const std::string& key, const std::string& value) {
  if (key[0] == 'j') return AlterSealed<v1::HostedJob>(in, value);
  const char kind = key.size() > 13 ? key[13] : ' ';  // "p" job:u64 partition:u32 kind
  if (kind == 'h') return AlterSealed<v1::PartitionImage>(in, value);
  if (kind == 'l') return AlterSealed<v1::LogEntry>(in, value);
  return value;
}

void Damage(ByteSource& in, KvStore& store) {
  std::vector<std::pair<std::string, std::string>> all;
  MustBeOk(store.Scan("", [&](std::string_view k, std::string_view v) {
    all.emplace_back(k, v);
    return true;
  }));
  const size_t which = in.Byte();
  if (all.empty()) return;
  auto& [key, value] = all[which % all.size()];
  KvBatch batch;
  batch.Delete(key);
  switch (in.Below(7)) {
    case 0:
      if (!value.empty()) value[in.Number(2) % value.size()] ^= static_cast<char>(in.Byte() | 1);
      break;
    case 1: value.resize(in.Number(2) % (value.size() + 1)); break;
    case 2: value += in.Bytes(in.Byte()); break;
    case 3: value = std::string(in.Block()); break;
    case 4: value = all[in.Below(all.size())].second; break;
    case 5:
      if (key.size() > 1) key[1 + in.Below(key.size() - 1)] = static_cast<char>(in.Byte());
      break;
    case 6: value = AlterMessage(in, key, value); break;
  }
  if (in.Below(8) != 0) batch.Put(key, value);
  MustBeOk(store.Write(batch, false));
}

Frame Push(const PartitionConfig& config, const PartitionCore& core) {
  const bool synchronous = config.mode == UpdateMode::kSynchronous;
  Frame f;
  f.kind = v1::ExchangeFrame::PUSH;
  f.job = config.job;
  f.partition = config.partition;
  f.generation = core.generation();
  f.replica_count = synchronous ? config.replicas : 1;
  f.sequence = core.state().sequences[0] + 1;
  f.examples = 4;
  f.learning_rate = 0.5f;
  f.dtype = v1::FLOAT32;
  f.payload = Buffer::Allocate(static_cast<size_t>(config.size()) * sizeof(float));
  std::memset(f.payload.mutable_data(), 0x3e, f.payload.size());
  f.payload_total = f.payload.size();
  return f;
}

void Update(const PartitionConfig& config, Persistence& persistence, PartitionCore& core) {
  CAIRN_CHECK(RunEvent(core, persistence, FrameEvent{1, Push(config, core)}, absl::UnixEpoch()).ok(), "update");
}

void Check(ByteSource in) {
  const PartitionConfig& config = SmallPartition(in);
  const std::unique_ptr<KvStore> store = NewMemoryKvStore();
  Persistence persistence(*store);
  v1::HostPartitions host;
  host.set_job_id(config.job.value);
  host.set_generation(config.generation.value);
  *host.mutable_spec() = SmallJob(config.mode != UpdateMode::kSynchronous);
  host.add_partitions()->set_partition(config.partition.value);
  MustBeOk(persistence.SetHostedJob(host));
  {
    PartitionCore core(config, PartitionState::Initial(config));
    const size_t updates = in.Below(16), image_at = in.Below(16);
    for (size_t i = 0; i < updates; ++i) {
      Update(config, persistence, core);
      if (i != image_at) continue;
      auto effects = RunEvent(core, persistence, TakeImageEvent{}, absl::UnixEpoch());
      if (!effects.ok() || !effects->image) continue;
      MustBeOk(persistence.WriteImage(config, *effects->image));
      (void)RunEvent(core, persistence, ImageWrittenEvent{effects->image->header.version(), true}, absl::UnixEpoch());
    }
  }
  while (!in.empty()) Damage(in, *store);

  (void)persistence.ListHostedJobs();
  absl::StatusOr<PartitionState> state = persistence.Recover(config);
  if (state.ok()) {
    PartitionCore core(config, *std::move(state));
    if (core.version() < UINT64_MAX - 8 && core.state().sequences[0] < UINT64_MAX - 8)
      Update(config, persistence, core);
  } else {
    CAIRN_CHECK(state.status().message().find("partition") != std::string_view::npos, "an error that names nothing");
  }
  (void)persistence.SetHostedJob(host);
  CAIRN_CHECK(persistence.DropJob(config.job).ok(), "a damaged job cannot be dropped");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
