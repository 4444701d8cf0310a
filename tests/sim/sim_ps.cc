#include "tests/sim/sim_ps.h"

#include "common/model/initializer.h"
#include "server/partition_config.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {

SimPs::SimPs(SimCluster& cluster, int index)
    : cluster_(cluster),
      world_(cluster.world()),
      index_(index),
      name_(absl::StrFormat("ps-%d", index)),
      store_(NewMemoryKvStore()),
      persistence_(*store_) {}

std::string SimPs::address() const { return absl::StrFormat("%s:%d", name_, process_); }

void SimPs::Start() {
  up_ = true;
  ++process_;
  world_.Trace("%s starts", name_);
  cluster_.JoinCluster(name_, process_);
}

void SimPs::Crash() {
  up_ = false;
  hosting_ = false;
  generation_ = 0;
  cores_.clear();
  streams_.clear();
  world_.Trace("%s is killed", name_);
}

v1::Hello SimPs::Hello() {
  v1::Hello hello;
  hello.set_name(name_);
  hello.set_role(v1::PS);
  hello.set_address(address());
  hello.set_host(name_);
  hello.set_incarnation(process_);
  const auto jobs = persistence_.ListHostedJobs();
  if (!jobs.ok()) world_.Fail(jobs.status().ToString());
  for (const v1::HostPartitions& host : *jobs) {
    v1::HeldPartitions* held = hello.add_held();
    held->set_job_id(host.job_id());
    held->set_generation(host.generation());
    const auto graph = std::make_shared<const Graph>(cluster_.graph());
    for (const v1::PartitionRange& range : host.partitions()) {
      const auto config =
          MakePartitionConfig(host.spec(), graph, range, JobId(host.job_id()), Generation(host.generation()));
      const auto state = persistence_.Recover(*config);
      if (!state.ok()) {
        world_.Fail(state.status().ToString());
        continue;
      }
      v1::HeldPartition* partition = held->add_partitions();
      partition->set_partition(range.partition());
      partition->set_version(state->version);
    }
  }
  return hello;
}

void SimPs::OnCommand(const v1::CoordinatorMessage& message) {
  if (message.has_host_partitions()) Host(message.host_partitions());
  if (message.has_drop_job()) {
    cores_.clear();
    hosting_ = false;
    if (auto s = persistence_.DropJob(JobId(message.drop_job().job_id())); !s.ok()) world_.Fail(s.ToString());
  }
}

void SimPs::Host(const v1::HostPartitions& host) {
  if (host.generation() < generation_) return;
  generation_ = host.generation();
  hosting_ = true;
  world_.Trace("%s hosts %d partitions, generation %d", name_, host.partitions_size(), generation_);
  if (auto s = persistence_.SetHostedJob(host); !s.ok()) world_.Fail(s.ToString());
  v1::NodeMessage reply;
  auto* ready = reply.mutable_partitions_ready();
  ready->set_job_id(host.job_id());
  ready->set_generation(host.generation());
  const auto graph = std::make_shared<const Graph>(cluster_.graph());
  for (const v1::PartitionRange& range : host.partitions()) {
    std::unique_ptr<PartitionCore>& core = cores_[range.partition()];
    if (core == nullptr) {
      auto config = MakePartitionConfig(host.spec(), graph, range, JobId(host.job_id()), Generation(host.generation()));
      if (!config.ok()) return world_.Fail(config.status().ToString());
      config->image.log_bytes_min = 400;
      config->image.log_to_image_ratio = 2;
      auto state = persistence_.Recover(*config);
      if (!state.ok()) return world_.Fail(state.status().ToString());
      if (cluster_.options().bug == PlantedBug::kForgetSequences) {
        std::fill(state->sequences.begin(), state->sequences.end(), 0);
      }
      cluster_.oracle().Recovered(range.partition(), *state);
      core = std::make_unique<PartitionCore>(*std::move(config), *std::move(state));
    } else {
      Run(range.partition(), AssignEvent{Generation(host.generation())});
    }
    v1::HeldPartition* held = ready->add_partitions();
    held->set_partition(range.partition());
    held->set_version(core->version());
  }
  cluster_.NodeSays(name_, std::move(reply));
}

void SimPs::OnFrame(const std::shared_ptr<Exchange>& stream, Frame frame) {
  streams_[stream->token] = stream;
  const uint32_t partition = frame.partition.value;
  if (!hosting_ || !cores_.contains(partition)) {
    Frame error;
    error.kind = v1::ExchangeFrame::ERROR;
    error.request_id = frame.request_id;
    error.partition = frame.partition;
    error.status = hosting_ ? absl::NotFoundError("not here") : absl::UnavailableError("not assigned yet");
    return Answer(stream->token, std::move(error));
  }
  Run(partition, FrameEvent{stream->token, std::move(frame)});
}

void SimPs::OnStreamClosed(uint64_t token) {
  streams_.erase(token);
  for (auto& [partition, core] : cores_) Run(partition, ClientGoneEvent{token});
}

void SimPs::Run(uint32_t partition, PartitionEvent event) {
  PartitionCore& core = *cores_[partition];
  const absl::Time now = world_.now();
  PartitionEffects effects = core.Step(std::move(event), now);
  // RunEvent's loop, with the oracle looking on.
  PartitionEffects all;
  while (true) {
    for (PartitionReply& r : effects.replies) all.replies.push_back(std::move(r));
    if (effects.image) all.image = std::move(effects.image);
    if (effects.persists.empty()) break;
    std::vector<Persist> persists = std::move(effects.persists);
    effects = {};
    for (Persist& persist : persists) {
      const uint64_t version = persist.entry.version();
      const bool lose = cluster_.options().bug == PlantedBug::kReplyBeforePersist && world_.rng.Chance(0.02);
      if (!lose) {
        if (auto s = persistence_.Append(core.config(), persist); !s.ok()) return world_.Fail(s.ToString());
      }
      cluster_.oracle().Appended(partition, persist.entry);
      persist.gradient = {};
      PartitionEffects more = core.Step(PersistedEvent{version}, now);
      for (Persist& p : more.persists) effects.persists.push_back(std::move(p));
      for (PartitionReply& r : more.replies) effects.replies.push_back(std::move(r));
      if (more.image) effects.image = std::move(more.image);
      if (lose) {  // the process dies before the entry reaches the store, after the answers left
        for (PartitionReply& r : effects.replies) Answer(r.client, std::move(r.frame));
        effects.replies.clear();
        world_.After(absl::Milliseconds(20), [this, process = process_] {
          if (up_ && process_ == process) {
            cluster_.NodeDown(name_);
            world_.After(absl::Milliseconds(100), [this] {
              if (!up_) Start();
            });
          }
        });
      }
    }
  }
  CheckBounds(world_, core);
  for (PartitionReply& r : all.replies) Answer(r.client, std::move(r.frame));
  if (all.image) {
    world_.After(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(50)),
                 [this, partition, process = process_, image = std::move(*all.image)] {
                   if (!up_ || process_ != process || !cores_.contains(partition)) return;
                   const absl::Status s = persistence_.WriteImage(cores_[partition]->config(), image);
                   if (!s.ok()) return world_.Fail(s.ToString());
                   Run(partition, ImageWrittenEvent{image.header.version(), true});
                 });
  } else if (core.image_due()) {
    Run(partition, TakeImageEvent{});
  }
}

void SimPs::Answer(uint64_t client, Frame frame) {
  auto found = streams_.find(client);
  std::shared_ptr<Exchange> stream = found == streams_.end() ? nullptr : found->second.lock();
  if (stream == nullptr || !stream->open) return;
  if (world_.rng.Chance(world_.network.lost)) {
    world_.Trace("the stream %s - %s breaks", stream->worker->name(), name_);
    stream->worker->BreakStreams(this);
    return;
  }
  world_.After(world_.NetworkDelay(), [stream, frame = std::move(frame)] {
    if (stream->open) stream->worker->OnReply(stream, CopyOverWire(frame));
  });
}

}  // namespace cairn::sim
