// World: a primary and two backups over streams that break, with crashes, restarts, late assignments and false
// suspicion. It expects that no acknowledged update is lost, none is applied twice, copies at one version have the same
// bits, and once faults stop everything catches up.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn::replication_test {

inline constexpr int kNodes = 3;

// Small whole numbers: their sums are exact in every order.
inline float GradientOf(uint32_t replica, uint64_t sequence) {
  return static_cast<float>((replica * 5 + sequence * 3) % 7);
}

struct Stream {
  uint64_t client = 0;  // at the backup
  int from = 0, to = 0;
  uint64_t epoch = 0;
  bool open = true;
  std::deque<Frame> there, back;
};

struct Node {
  std::unique_ptr<KvStore> store = NewMemoryKvStore();
  std::unique_ptr<PartitionCore> core;
  uint64_t epoch = 0;
  std::deque<AssignEvent> commands;
  std::deque<Image> images;  // being written
  bool assigned = false;
};

class World {
 public:
  World(uint32_t seed, UpdateMode mode, v1::Durability durability)
      : rng_(seed), durability_(durability), config_(TestConfig(mode, mode == UpdateMode::kSynchronous ? 2 : 3)) {
    config_.durability = durability;
    config_.generation = Generation(1);
    Dense(config_).optimizer.rule = UpdateRule::kMomentum;  // momentum 0: plain steps, and a slot that has to agree
    config_.image = {.log_bytes_min = 800, .log_to_image_ratio = 1};
    acked_.assign(config_.replicas, 0);
    in_sync_ = {0};
    for (int n = 0; n < kNodes; ++n) Start(n);
    Assign();
  }

  void Faulty(int steps) {
    for (int i = 0; i < steps; ++i) Any(/*faults=*/true);
  }
  void Quiet() {
    for (int n = 0; n < kNodes; ++n) {
      if (nodes_[n].core == nullptr) Start(n);
    }
    const uint64_t goal = *std::max_element(acked_.begin(), acked_.end()) + 5;
    for (int i = 0; i < 40000; ++i) {
      Any(/*faults=*/false);
      const bool done = std::all_of(acked_.begin(), acked_.end(), [&](uint64_t a) { return a >= goal; });
      if (done && in_sync_.size() == kNodes) break;
    }
    for (uint64_t a : acked_) ASSERT_GE(a, goal) << "no progress after the faults\n" << Describe();
    ASSERT_EQ(in_sync_.size(), size_t{kNodes}) << "backups that do not catch up\n" << Describe();
    Check();
  }

 private:
  // ---- faults ----

  void Any(bool faults) {
    now_ += absl::Milliseconds(rng_() % 20);
    switch (rng_() % (faults ? 23 : 14)) {
      case 0:
      case 1:
      case 2: return Push();
      case 3:
      case 4:
      case 5:
      case 6:
      case 7: return Deliver();
      case 8: return Command();
      case 9: return Coordinate();
      case 10: return WriteImage();
      case 11: return Connect();
      case 12:
      case 13: return Tick();
      case 14:
      case 15:
        if (rng_() % 4 == 0) Break();
        return;
      case 16:
        if (rng_() % 12 == 0) Crash(rng_() % kNodes);
        return;
      case 17:
        if (const int n = rng_() % kNodes; nodes_[n].core == nullptr && rng_() % 3 == 0) Start(n);
        return;
      case 18:
        if (rng_() % 20 == 0) Suspect();
        return;
      default: return Deliver();
    }
  }

  void Start(int n) {
    Node& node = nodes_[n];
    PartitionConfig config = config_;
    config.backup = n != primary_;
    config.generation = Generation(1);
    auto state = Persistence(*node.store).Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    node.core = std::make_unique<PartitionCore>(config, *std::move(state));
    node.assigned = false;
    if (generation_ > 0) returned_.insert(n);
  }

  void Crash(int n) {
    Node& node = nodes_[n];
    // REPLICATED survives the loss of one data directory, not of two at the same time.
    if (node.core == nullptr || (wiped_ >= 0 && in_sync_.contains(wiped_) && n != wiped_)) return;
    const auto others = std::count_if(in_sync_.begin(), in_sync_.end(), [&](int o) {
      return o != n && nodes_[o].core != nullptr && !dead_.contains(o) && !returned_.contains(o);
    });
    node.core.reset();
    node.images.clear();
    node.commands.clear();
    if (durability_ == v1::REPLICATED && in_sync_.contains(n) && others > 0) {
      node.store = NewMemoryKvStore();
      wiped_ = n;
    }
    for (auto& s : streams_) {
      if (s->from == n || s->to == n) Close(*s, s->to == n);
    }
    dead_.insert(n);
  }

  void Close(Stream& s, bool drop) {
    s.open = false;
    s.back.clear();
    if (drop) s.there.clear();  // otherwise what is under way still arrives
    if (nodes_[s.from].core != nullptr) Run(s.from, LinkDownEvent{Address(s.to), s.epoch});
  }

  void Break() {
    if (streams_.empty()) return;
    Stream& s = *streams_[rng_() % streams_.size()];
    if (s.open) Close(s, rng_() % 2 == 0);
  }

  void Suspect() {
    if (in_sync_.size() > 1 && nodes_[primary_].core != nullptr) Promote(primary_);
  }

  // ---- the coordinator ----

  void Coordinate() {
    if (dead_.empty() && returned_.empty()) return;
    for (int n : std::exchange(dead_, {})) {
      if (n == primary_) {
        Promote(n);
      } else if (in_sync_.contains(n) && in_sync_.size() > 1) {
        in_sync_.erase(n);
        Assign();
      }
    }
    for (int n : std::exchange(returned_, {})) {
      if (n == primary_) Promote(n);
      if (n != primary_) in_sync_.erase(n);
      Assign();
    }
  }

  // Promotes another copy in sync, or the same one if there is none.
  void Promote(int instead_of) {
    std::vector<int> able;
    for (int n : in_sync_) {
      if (n != instead_of && nodes_[n].core != nullptr && !returned_.contains(n) && !dead_.contains(n))
        able.push_back(n);
    }
    if (able.empty()) {
      if (nodes_[instead_of].core == nullptr) dead_.insert(instead_of);  // wait for it
      return Assign();
    }
    in_sync_.erase(instead_of);
    primary_ = able[rng_() % able.size()];
    Assign();
  }

  void Assign() {
    ++generation_;
    for (int n = 0; n < kNodes; ++n) {
      if (nodes_[n].core != nullptr) nodes_[n].commands.push_back(RoleOf(n));
    }
  }
  AssignEvent RoleOf(int n) {
    AssignEvent role{Generation(generation_), n != primary_, {}};
    for (int b = 0; b < kNodes && n == primary_; ++b) {
      if (b == n) continue;
      v1::BackupRoute& route = role.backups.emplace_back();
      route.set_node(absl::StrCat("ps-", b));
      route.set_address(Address(b));
      route.set_in_sync(in_sync_.contains(b));
    }
    return role;
  }

  void Command() {
    const int n = rng_() % kNodes;
    Node& node = nodes_[n];
    if (node.core == nullptr || node.commands.empty()) return;
    const AssignEvent role = std::move(node.commands.front());
    node.commands.pop_front();
    node.assigned = true;
    Run(n, role);
  }

  void Report(int from, const v1::BackupReport& report) {
    if (from != primary_ || report.generation() != generation_) return;
    if (!report.lost().empty()) return;  // this coordinator takes nobody away
    const int backup = report.node().back() - '0';
    if (nodes_[backup].core == nullptr || dead_.contains(backup) || returned_.contains(backup)) return;
    if (!in_sync_.insert(backup).second) return;
    if (backup == wiped_) wiped_ = -1;
    if (rng_() % 2 == 0) {
      Assign();
    } else {
      nodes_[from].commands.push_back(RoleOf(from));  // in the same generation
    }
  }

  // ---- streams ----

  static std::string Address(int n) { return absl::StrCat("ps-", n, ":1"); }
  static int NodeOf(const std::string& address) { return address[3] - '0'; }

  void Connect() {
    const int n = rng_() % kNodes;
    if (nodes_[n].core == nullptr) return;
    for (const BackupLink& link : nodes_[n].core->links()) {
      const int to = NodeOf(link.address());
      if (link.stage() != BackupLink::Stage::kDown || nodes_[to].core == nullptr) continue;
      auto s = std::make_unique<Stream>();
      s->client = ++next_client_;
      s->from = n;
      s->to = to;
      s->epoch = ++nodes_[n].epoch;
      const LinkUpEvent up{link.address(), s->epoch};
      streams_.push_back(std::move(s));
      return Run(n, up);
    }
  }

  void Deliver() {
    std::erase_if(streams_, [](const auto& s) { return !s->open && s->there.empty(); });
    if (streams_.empty()) return;
    Stream& s = *streams_[rng_() % streams_.size()];
    if (!s.there.empty() && (s.back.empty() || rng_() % 2 == 0)) {
      Frame f = std::move(s.there.front());
      s.there.pop_front();
      Node& node = nodes_[s.to];
      if (node.core == nullptr) return;
      if (!node.assigned) {
        f.kind = v1::ExchangeFrame::ERROR;
        f.payload = {};
        f.status = absl::UnavailableError("not assigned");
        f.generation = {};
        if (s.open) s.back.push_back(std::move(f));
        return;
      }
      f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
      Run(s.to, FrameEvent{s.client, std::move(f)});
    } else if (!s.back.empty()) {
      Frame f = std::move(s.back.front());
      s.back.pop_front();
      if (!(answered_[s.client].insert(f.request_id).second)) return;  // an image is answered once
      if (nodes_[s.from].core != nullptr) Run(s.from, PeerFrameEvent{Address(s.to), s.epoch, std::move(f)});
    }
  }

  void Tick() {
    const int n = rng_() % kNodes;
    if (nodes_[n].core == nullptr) return;
    Run(n, TickEvent{});
    if (nodes_[n].core->image_to_send(now_)) Run(n, SendImageEvent{});
    if (nodes_[n].core->image_due()) Run(n, TakeImageEvent{});
  }

  void WriteImage() {
    const int n = rng_() % kNodes;
    Node& node = nodes_[n];
    if (node.core == nullptr || node.images.empty()) return;
    const Image image = std::move(node.images.front());
    node.images.pop_front();
    ASSERT_TRUE(Persistence(*node.store).WriteImage(node.core->config(), image).ok());
    Run(n, ImageWrittenEvent{image.header.version(), true});
  }

  void Run(int n, PartitionEvent event) {
    Node& node = nodes_[n];
    Persistence persistence(*node.store);
    const absl::Status ran =
        RunEvent(*node.core, persistence, std::move(event), now_, [&](PartitionEffects& e) { CarryOut(n, e); });
    ASSERT_TRUE(ran.ok()) << ran;
  }

  void CarryOut(int n, PartitionEffects& e) {
    for (PeerSend& send : e.sends) {
      for (auto& s : streams_) {
        if (s->from != n || Address(s->to) != send.address || s->epoch != send.epoch || !s->open) continue;
        for (Frame& f : send.frames) s->there.push_back(std::move(f));
      }
    }
    for (PartitionReply& reply : e.replies) {
      if (reply.client >= kWorker) {
        Answered(reply.frame);
        continue;
      }
      for (auto& s : streams_) {
        if (s->client == reply.client && s->open) s->back.push_back(std::move(reply.frame));
      }
    }
    if (e.image) nodes_[n].images.push_back(*std::move(e.image));
    for (const v1::BackupReport& report : e.reports) Report(n, report);
  }

  // ---- workers: they push to the copy that they believe to be the primary ----

  static constexpr uint64_t kWorker = uint64_t{1} << 40;

  void Push() {
    const int n = rng_() % 4 == 0 ? rng_() % kNodes : primary_;
    Node& node = nodes_[n];
    if (node.core == nullptr || !node.assigned || node.core->waiting() > 20) return;
    for (const auto& s : streams_) {
      if (s->open && s->there.size() + s->back.size() > 40) return;  // the streams keep up with the workers
    }
    const uint32_t replica = rng_() % config_.replicas;
    const uint64_t sequence = config_.mode == UpdateMode::kSynchronous
                                  ? *std::min_element(acked_.begin(), acked_.end()) + 1
                                  : acked_[replica] + 1;
    Frame f = PushFrame(config_, replica, 1, sequence, Filled(config_, GradientOf(replica, sequence)), 1, 1.0f);
    f.generation = rng_() % 8 == 0 ? Generation(generation_) : node.core->generation();
    Run(n, FrameEvent{kWorker, std::move(f)});
  }

  void Answered(const Frame& f) {
    if (f.kind != v1::ExchangeFrame::VALUES) {
      last_error_ = f.status.ToString();
      return;
    }
    uint64_t& acked = acked_[f.replica_first.value];
    // The answer confirms what the replica pushed, and everything of it before.
    acked = std::max(acked, f.sequence);
  }

  // ---- checks ----

  std::string Describe() const;
  void Check();
  void CheckSums(const PartitionState& s);

  std::mt19937 rng_;
  const v1::Durability durability_;
  PartitionConfig config_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Node nodes_[kNodes];
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<uint64_t, std::set<uint64_t>> answered_;
  uint64_t next_client_ = 0;
  int wiped_ = -1;  // whose data directory went last
  // The coordinator's:
  uint64_t generation_ = 0;
  int primary_ = 0;
  std::set<int> in_sync_;
  std::set<int> dead_, returned_;  // not dealt with yet
  // The workers':
  std::vector<uint64_t> acked_;
  std::string last_error_;
};

}  // namespace cairn::replication_test
