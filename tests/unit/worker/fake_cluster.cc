#include "tests/unit/worker/fake_cluster.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/gradient_layout.h"
#include "common/model/learning_rate.h"

namespace cairn {
namespace {
constexpr uint64_t kPartitionNumbers = 32;
constexpr int kGrowthSteps = 2;
}  // namespace

FakeCluster::FakeCluster(const ClusterOptions& options)
    : options_(options),
      random_(options.seed),
      plan_(StepPlan::Make(options.examples, options.batch_size, options.replicas, 0, options.epochs)),
      reassignments_left_(options.reassignments),
      restarts_left_(options.ps_restarts),
      moves_left_(options.partition_moves),
      crashes_left_(options.crashes) {
  if (options.gated) epochs_open_ = 1;
  spec_.set_replicas(options.replicas);
  spec_.set_batch_size(options.batch_size);
  spec_.set_epochs(options.epochs);
  spec_.set_validation_freq(options.validation_freq);
  spec_.set_wire_dtype(options.wire);
  spec_.set_values_wire_dtype(options.values);
  spec_.set_seed(7);
  spec_.mutable_optimizer()->set_learning_rate(0.25f);
  spec_.add_metrics()->set_kind(v1::Metric::ACCURACY);
  if (!options.synchronous) {
    spec_.set_strategy(v1::PARAMETER_SERVER);
    if (options.staleness > 0) spec_.set_staleness_bound(options.staleness);
  }
  if (options.clipnorm > 0) spec_.mutable_optimizer()->set_clipnorm(static_cast<float>(options.clipnorm));
  if (options.global_clipnorm > 0) {
    spec_.mutable_optimizer()->set_global_clipnorm(static_cast<float>(options.global_clipnorm));
  }
  if (options.loss_scale > 0) {
    spec_.set_compute_dtype(v1::FLOAT16);
    spec_.mutable_loss_scaling()->set_initial_scale(options.loss_scale);
    spec_.mutable_loss_scaling()->set_dynamic_growth_steps(kGrowthSteps);
  }
  // A model of as many numbers.
  spec_.mutable_model()->add_layers()->mutable_input()->add_shape(
      static_cast<int64_t>(kPartitionNumbers) * options.partitions - 16);
  v1::Dense& dense = *spec_.mutable_model()->add_layers()->mutable_dense();
  dense.set_units(1);
  dense.set_use_bias(false);
  layout_ = GradientLayoutOf(Graph::Build(spec_.model()).value(), spec_);
  for (int p = 0; p < options.partitions; ++p) {
    v1::PartitionRange range;
    range.set_partition(static_cast<uint32_t>(p));
    range.set_begin(static_cast<uint64_t>(p) * kPartitionNumbers);
    range.set_end(static_cast<uint64_t>(p + 1) * kPartitionNumbers - (p + 1 == options.partitions ? 16 : 0));
    ranges_.push_back(range);
    std::vector<float> values;
    for (uint64_t i = range.begin(); i < range.end(); ++i) values.push_back(0.01f * static_cast<float>(i % 29) - 0.1f);
    initial_.insert(initial_.end(), values.begin(), values.end());
    partitions_.emplace_back(static_cast<uint32_t>(p), values, static_cast<uint32_t>(options.replicas),
                             options.synchronous, options.staleness,
                             ClipScopes(static_cast<int64_t>(range.begin()), static_cast<int64_t>(range.end())),
                             ClipNormOf(spec_.optimizer()));
    partitions_.back().UseLossScale(options.loss_scale, kGrowthSteps);
    partitions_.back().UseRounding(spec_.seed(), static_cast<int64_t>(range.begin()), layout_);
    home_.push_back(p % 2);
  }
  workers_.resize(static_cast<size_t>(options.workers));
  lives_.assign(workers_.size(), 1);
  for (size_t w = 0; w < workers_.size(); ++w) {
    ReplicaCoreOptions core;
    core.jitter_seed = options.seed + w;
    core.joins = options.joins;
    workers_[w].core = std::make_unique<ReplicaCore>(core);
  }
}

std::vector<ClipScope> FakeCluster::ClipScopes(int64_t begin, int64_t end) const {
  std::vector<ClipScope> scopes;
  const int64_t space = static_cast<int64_t>(kPartitionNumbers) * options_.partitions - 16;
  const ClipScope finite{
      kFiniteScope, static_cast<uint64_t>(end - begin), static_cast<uint64_t>(space), {{0, end - begin}}};
  if (ClipNormOf(spec_.optimizer()) == 0) {
    if (options_.loss_scale > 0) scopes.push_back(finite);
    return scopes;
  }
  ClipScope all;
  for (int64_t offset = 0; offset < space; offset += 48) {
    const int64_t size = std::min<int64_t>(40, space - offset);
    const int64_t from = std::max(offset, begin), to = std::min(offset + size, end);
    all.total += static_cast<uint64_t>(size);
    if (from >= to) continue;
    ClipScope scope;
    scope.id = static_cast<uint64_t>(offset);
    scope.numbers = static_cast<uint64_t>(to - from);
    scope.total = static_cast<uint64_t>(size);
    scope.ranges.emplace_back(from - begin, to - begin);
    all.numbers += scope.numbers;
    all.ranges.push_back(scope.ranges[0]);
    scopes.push_back(std::move(scope));
  }
  if (options_.global_clipnorm > 0) scopes = {all};
  if (options_.loss_scale > 0) scopes.push_back(finite);
  return scopes;
}

// Of the sum over the replica's examples of the step. Rounding is the point: the order of additions shows in the bits.
float FakeCluster::Gradient(int64_t step, int replica, size_t i, float value, float loss_scale) const {
  if (loss_scale >= 16 && (step * 31 + replica * 57 + static_cast<int64_t>(i)) % 89 == 0)
    return i % 2 == 0 ? INFINITY : NAN;
  const PlaceRange places = plan_.Places(step, ReplicaId(replica));
  float sum = 0;
  for (int64_t e = places.begin; e < places.end; ++e) {
    const int64_t mix = (e + 3) * 7919 + step * 131 + static_cast<int64_t>(i) * 31;
    sum += static_cast<float>(mix % 1013) * 0.00123f - 0.5f + value * 0.3f;
  }
  return sum;
}

std::vector<float> FakeCluster::ReferenceValues() const {
  std::vector<float> values = initial_;
  float loss_scale = options_.loss_scale;
  int finite_steps = 0;
  reference_skips_ = 0;
  for (int64_t step = 0; step < plan_.total_steps; ++step) {
    std::vector<float> seen = values;
    RoundNearest(ValuesRounding(ValuesTypeOf(spec_), 0, layout_), absl::MakeSpan(seen));
    const GradientRounding rounding = {options_.wire, spec_.seed(), static_cast<uint64_t>(step) + 1, 0, &layout_};
    NaiveSum sum = SumTree(rounding, 0, static_cast<uint32_t>(options_.replicas),
                           [&](uint32_t r, uint32_t n) -> std::optional<NaiveSum> {
                             if (n != 1) return std::nullopt;
                             NaiveSum leaf;
                             leaf.examples = plan_.Places(step, ReplicaId(r)).size();
                             for (size_t i = 0; i < seen.size() && leaf.examples > 0; ++i) {
                               leaf.gradient.push_back(Gradient(step, static_cast<int>(r), i, seen[i], loss_scale));
                             }
                             RoundGradient(rounding, {r, 1}, absl::MakeSpan(leaf.gradient));
                             return leaf;
                           });
    const bool finite = loss_scale == 0 ||
                        std::all_of(sum.gradient.begin(), sum.gradient.end(), [](float g) { return std::isfinite(g); });
    if (loss_scale > 0) loss_scale = NaiveLossScale(loss_scale, finite_steps, finite, kGrowthSteps);
    if (!finite) {
      ++reference_skips_;
      continue;
    }
    NaiveClip(sum, ClipScopes(0, static_cast<int64_t>(values.size())), ClipNormOf(spec_.optimizer()));
    NaiveApply(values, sum, LearningRateAt(spec_, step));
  }
  return values;
}

std::vector<float> FakeCluster::FinalValues() const {
  std::vector<float> values;
  for (const NaivePartition& p : partitions_) values.insert(values.end(), p.values().begin(), p.values().end());
  return values;
}

void FakeCluster::Reassign() {
  for (Worker& worker : workers_) worker.replicas.clear();
  for (int r = 0; r < options_.replicas; ++r) workers_[Pick(workers_.size())].replicas.push_back(r);
  ++assignment_;
}

void FakeCluster::SendAssignments() {
  v1::AssignReplicas message;
  message.set_job_id(7);
  message.set_generation(generation_);
  message.set_assignment(assignment_);
  *message.mutable_spec() = spec_;
  for (size_t p = 0; p < ranges_.size(); ++p) {
    v1::Route* route = message.add_routes();
    *route->mutable_range() = ranges_[p];
    route->set_address(AddressOf(static_cast<int>(p)));
  }
  message.mutable_data()->set_train_examples(static_cast<uint64_t>(options_.examples));
  message.mutable_data()->set_validation_examples(static_cast<uint64_t>(options_.validation_examples));
  message.set_steps_per_epoch(plan_.steps_per_epoch);
  message.set_total_steps(plan_.total_steps);
  message.set_epochs_open(epochs_open_);
  for (Worker& worker : workers_) {
    message.clear_replicas();
    for (int r : worker.replicas) message.add_replicas(r);
    worker.assignments.push_back(message);
  }
}

// What callbacks decide at the end of an epoch.
void FakeCluster::OpenEpoch() {
  if (!options_.gated || epochs_open_ * plan_.steps_per_epoch >= plan_.total_steps) return;
  for (int r = 0; r < options_.replicas; ++r) {
    if (!validated.contains({r, epochs_open_ - 1})) return;
  }
  if (epochs_open_ == options_.stop_after) {
    plan_.total_steps = epochs_open_ * plan_.steps_per_epoch;
  } else {
    ++epochs_open_;
  }
  ++assignment_;
  SendAssignments();
}

void FakeCluster::Count(const v1::ReplicaReport& report) {
  if (report.finished()) {
    finished_[report.replica()] = true;
    return;
  }
  if (report.has_validation()) {
    validated[{report.replica(), report.validation_epoch()}] = report.validation().examples();
    OpenEpoch();
    return;
  }
  if (report.last_step() >= plan_.total_steps) failures.push_back("a step that the job does not have");
}

bool FakeCluster::Run() {
  Reassign();
  SendAssignments();
  for (int64_t turn = 0; turn < 2'000'000; ++turn) {
    if (Finished() || !failures.empty()) return failures.empty();
    Disturb();
    // The ps hear of a new generation at some time after, or before, the workers do.
    NaivePartition& some = partitions_[Pick(partitions_.size())];
    if (some.generation() < generation_ && Chance(0.3)) some.RaiseGeneration(generation_);

    std::vector<std::pair<int, int>> choices;  // (what, worker)
    if (!requests_.empty()) choices.insert(choices.end(), 3, {0, 0});
    if (!answers_.empty()) choices.insert(choices.end(), 3, {1, 0});
    for (int w = 0; w < options_.workers; ++w) {
      const Worker& worker = workers_[static_cast<size_t>(w)];
      if (!worker.running.empty()) choices.insert(choices.end(), 3, {2, w});
      if (!worker.assignments.empty()) choices.emplace_back(3, w);
    }
    if (choices.empty() || Chance(0.02)) choices.emplace_back(4, 0);
    const auto [what, w] = choices[Pick(choices.size())];
    Worker& worker = workers_[static_cast<size_t>(w)];
    if (what == 0) DeliverRequest();
    if (what == 1) DeliverAnswer();
    if (what == 2) Compute(w);
    if (what == 3) {
      v1::AssignReplicas message = std::move(worker.assignments.front());
      worker.assignments.erase(worker.assignments.begin());
      Feed(w, replica::Assign{std::move(message)});
    }
    if (what == 4) {
      absl::Time next = absl::InfiniteFuture();
      for (const Worker& each : workers_) {
        if (!each.timers.empty()) next = std::min(next, each.timers.begin()->first);
      }
      if (next == absl::InfiniteFuture()) {
        const bool generations_known = std::all_of(partitions_.begin(), partitions_.end(),
                                                   [&](const auto& p) { return p.generation() == generation_; });
        if (choices.size() == 1 && generations_known) return false;  // nothing will ever happen again
        continue;
      }
      now_ = std::max(now_, next);
      for (int each = 0; each < options_.workers; ++each) {
        auto& timers = workers_[static_cast<size_t>(each)].timers;
        const bool due = !timers.empty() && timers.begin()->first <= now_;
        timers.erase(timers.begin(), timers.upper_bound(now_));
        if (due) Feed(each, replica::Timer{});
      }
    }
    if (!options_.synchronous) {
      for (const NaivePartition& p : partitions_) {
        uint64_t low = UINT64_MAX, high = 0;
        for (int r = 0; r < options_.replicas; ++r) {
          low = std::min(low, p.last(static_cast<uint32_t>(r)));
          high = std::max(high, p.last(static_cast<uint32_t>(r)));
        }
        ahead_max = std::max(ahead_max, static_cast<int>(high - low));
      }
    }
  }
  return false;
}

}  // namespace cairn
