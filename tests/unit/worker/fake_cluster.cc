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
    RoundTo(ValuesTypeOf(options_.wire), absl::MakeSpan(seen));
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

void FakeCluster::Feed(int w, replica::Event event) {
  Worker& worker = workers_[static_cast<size_t>(w)];
  for (replica::Effect& effect : worker.core->Step(std::move(event), now_)) {
    if (auto* send = std::get_if<replica::Send>(&effect)) {
      ++sends;
      requests_.push_back(
          {w, lives_[static_cast<size_t>(w)], send->request, std::move(send->address), std::move(send->frame)});
    } else if (auto* compute = std::get_if<replica::Compute>(&effect)) {
      if (options_.gated && compute->step >= epochs_open_ * plan_.steps_per_epoch)
        failures.push_back("an epoch that is not open");
      Running running;
      running.work = compute->work;
      running.replica = compute->replica;
      running.step = compute->step;
      running.examples = static_cast<uint64_t>(plan_.Places(compute->step, compute->replica).size());
      running.values = std::move(compute->values);
      running.gradient = std::move(compute->gradient);
      if (compute->joint != nullptr) running.join = JoinOf(worker, compute->joint);
      running.loss_scale = compute->loss_scale;
      for (uint32_t p = 0; p < ranges_.size(); ++p) running.unannounced.push_back(p);
      worker.running.push_back(std::move(running));
    } else if (auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
      Running running;
      running.work = evaluate->work;
      running.training = false;
      running.replica = evaluate->replica;
      running.examples = static_cast<uint64_t>(evaluate->places.size());
      running.values = std::move(evaluate->values);
      worker.running.push_back(std::move(running));
    } else if (auto* report = std::get_if<replica::Report>(&effect)) {
      Count(report->report);
    } else if (auto* timer = std::get_if<replica::SetTimer>(&effect)) {
      worker.timers.emplace(timer->at, 0);
    } else if (auto* fail = std::get_if<replica::Fail>(&effect)) {
      failures.push_back(fail->message);
    }
  }
}

// One step of one piece of work: announce a partition's gradient, or come to the end.
void FakeCluster::Compute(int w) {
  Worker& worker = workers_[static_cast<size_t>(w)];
  const size_t which = Pick(worker.running.size());
  Running& running = worker.running[which];
  BatchSums sums{running.examples, static_cast<double>(running.examples), {0.5}};
  if (running.training && !running.begun) {
    running.begun = true;
    const auto values = running.values.floats();
    absl::Span<float> gradient = running.gradient.mutable_floats();
    if (running.join != nullptr) {
      auto& leaf =
          running.join->gradients[static_cast<size_t>(running.replica.value) - running.join->joint->node.first];
      leaf.resize(values.size());
      gradient = absl::MakeSpan(leaf);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      gradient[i] = Gradient(running.step, running.replica.value, i, values[i], running.loss_scale);
    }
  }
  if (running.training && !running.unannounced.empty()) {
    const size_t k = Pick(running.unannounced.size());
    const uint32_t p = running.unannounced[k];
    running.unannounced.erase(running.unannounced.begin() + static_cast<int64_t>(k));
    if (running.join == nullptr) {
      Feed(w, replica::GradientReady{running.work, p, p + 1});
    } else if (Sum(*running.join, p)) {
      ++node_sums;
      Feed(w, replica::GradientSummed{running.join->joint->number, p, p + 1});
    }
    return;
  }
  const Running done = std::move(running);
  worker.running.erase(worker.running.begin() + static_cast<int64_t>(which));
  const uint64_t work = done.work;
  const bool training = done.training;
  const_cast<Running&>(done) = Running();  // lets go of its buffers before the core hears of it
  if (training) {
    Feed(w, replica::Computed{work, sums});
  } else {
    Feed(w, replica::Evaluated{work, sums});
  }
}

std::shared_ptr<FakeCluster::Join> FakeCluster::JoinOf(Worker& worker,
                                                       const std::shared_ptr<const replica::Joint>& joint) {
  std::erase_if(worker.joins, [](const auto& each) {
    const std::vector<int>& missing = each.second->missing;
    return std::count(missing.begin(), missing.end(), 0) == static_cast<int64_t>(missing.size());
  });
  std::shared_ptr<Join>& join = worker.joins[joint->number];
  if (join == nullptr) {
    join = std::make_shared<Join>();
    join->joint = joint;
    join->gradients.resize(joint->leaves.size());
    join->missing.assign(ranges_.size(),
                         static_cast<int>(std::count(joint->leaves.begin(), joint->leaves.end(), true)));
  }
  return join;
}

bool FakeCluster::Sum(Join& join, uint32_t p) {
  if (--join.missing[p] > 0) return false;
  const size_t begin = ranges_[p].begin(), numbers = ranges_[p].end() - begin;
  std::vector<GradientSum> leaves(join.gradients.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (join.joint->leaves[i]) leaves[i] = {absl::MakeSpan(join.gradients[i]).subspan(begin, numbers), 1};
  }
  const size_t element = SizeOf(join.joint->type);
  Buffer into = join.joint->gradient;
  const GradientRounding rounding = {join.joint->type, 0, 0, static_cast<int64_t>(begin), &join.joint->layout};
  PackRounded(rounding, join.joint->node, SumSubtree(join.joint->node, leaves, rounding).gradient,
              {into.mutable_data() + begin * element, numbers * element});
  return true;
}

void FakeCluster::Take(std::vector<NaiveAnswer> answers) {
  for (NaiveAnswer& answer : answers) {
    const auto it = asked_.find(answer.ticket);
    if (it == asked_.end()) continue;  // repeated by the network; nobody waits
    absl::StatusOr<Frame> frame = std::move(answer.frame);
    if (Chance(options_.loss)) frame = absl::UnavailableError("the answer was lost");
    answers_.push_back({std::move(it->second), std::move(frame)});
    asked_.erase(it);
  }
}

void FakeCluster::DeliverRequest() {
  const size_t which = Pick(requests_.size());
  Request request = std::move(requests_[which]);
  requests_.erase(requests_.begin() + static_cast<int64_t>(which));
  if (Chance(options_.loss)) {
    answers_.push_back({std::move(request), absl::UnavailableError("the request was lost")});
    return;
  }
  const uint32_t p = request.frame.partition.value;
  if (request.address != AddressOf(static_cast<int>(p))) {
    answers_.push_back({std::move(request), absl::NotFoundError("not here")});
    return;
  }
  const Frame frame = request.frame;
  if (Chance(options_.loss)) Take(partitions_[p].Handle(++tickets_, frame));  // arrives twice
  asked_[++tickets_] = std::move(request);
  Take(partitions_[p].Handle(tickets_, frame));
}

void FakeCluster::DeliverAnswer() {
  const size_t which = Pick(answers_.size());
  Answer answer = std::move(answers_[which]);
  answers_.erase(answers_.begin() + static_cast<int64_t>(which));
  if (answer.to.life != lives_[static_cast<size_t>(answer.to.worker)]) return;
  Feed(answer.to.worker, replica::Reply{answer.to.token, std::move(answer.frame)});
}

void FakeCluster::Disturb() {
  if (reassignments_left_ > 0 && Chance(0.01)) {
    --reassignments_left_;
    Reassign();
    if (Chance(0.5)) ++generation_;
    SendAssignments();
  }
  if (restarts_left_ > 0 && Chance(0.01)) {
    --restarts_left_;
    Take(partitions_[Pick(partitions_.size())].Restart());
  }
  if (moves_left_ > 0 && Chance(0.01)) {
    --moves_left_;
    const size_t p = Pick(partitions_.size());
    home_[p] = 1 - home_[p];
    Take(partitions_[p].Restart());
    ++generation_;
    SendAssignments();
  }
  if (crashes_left_ > 0 && Chance(0.01)) {
    --crashes_left_;
    const size_t w = Pick(workers_.size());
    ++lives_[w];
    ReplicaCoreOptions core;
    core.jitter_seed = options_.seed + 1000 * lives_[w];
    core.joins = options_.joins;
    workers_[w] = Worker();
    workers_[w].core = std::make_unique<ReplicaCore>(core);
    Reassign();
    ++generation_;
    SendAssignments();
  }
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
