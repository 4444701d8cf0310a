// What FakeCluster does in one step: it feeds a core, computes, delivers a request or an answer, disturbs.
#include <algorithm>
#include <utility>

#include "tests/unit/worker/fake_cluster.h"

namespace cairn {

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

}  // namespace cairn
