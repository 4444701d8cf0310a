#include "worker/core/step_pushes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn::replica {

void StepPushes::Begin() {
  done_.assign(context_.assignment.parts.size(), 0);
  done_count_ = 0;
  clips_.Begin(step_.number);
  pushes_.clear();
}

void StepPushes::Stop() {
  pushes_.clear();
  clips_.Stop();
}

void StepPushes::Build() {
  // No step follows. Where a callback ended the job before this step, there are pushes: they must not name replicas
  // that are no longer own ones.
  if (step_.number == context_.schedule.plan.total_steps && pushes_.empty()) return;
  std::vector<StepPush> former = std::exchange(pushes_, {});
  std::vector<size_t> again;
  size_t begin = 0;
  for (const TreeNode& node : rules_.NodesOf(replicas_.Numbers())) {
    const auto same = std::find_if(former.begin(), former.end(), [&](const StepPush& p) { return p.node == node; });
    if (same != former.end()) {
      pushes_.push_back(std::move(*same));
    } else {
      StepPush& push = pushes_.emplace_back();
      push.node = node;
      push.requests.resize(context_.assignment.parts.size());
      push.summed_in.assign(context_.assignment.parts.size(), -1);
      for (size_t i = begin; i < begin + node.count; ++i) {
        OwnReplica& own = replicas_[i];
        push.examples += own.examples;
        const bool joined = own.joint != nullptr && own.joint->node == node;
        if (!joined) own.joint = nullptr;
        if (own.touched && !joined) again.push_back(i);
      }
    }
    pushes_.back().own_begin = begin;
    begin += node.count;
  }
  for (size_t i : again) replicas_.Compute(replicas_[i]);
  SendAllReady();
}

void StepPushes::SendAllReady() {
  for (StepPush& push : pushes_) SendReady(push);
}

void StepPushes::SendReady(const OwnReplica& own) { SendReady(PushOf(own)); }

void StepPushes::SendReady(uint32_t partition) {
  for (StepPush& push : pushes_) TrySend(push, partition);
}

void StepPushes::SendReady(StepPush& push) {
  for (uint32_t p = 0; p < context_.assignment.parts.size(); ++p) TrySend(push, p);
}

void StepPushes::TrySend(StepPush& push, uint32_t partition) {
  if (done_[partition] || clips_.Has(partition) || push.requests[partition].state != Request::State::kIdle) return;
  for (size_t i = push.own_begin; i < push.own_begin + push.node.count; ++i) {
    const OwnReplica& own = replicas_[i];
    const bool computing = own.state == OwnReplica::State::kComputing && partition != kFiguresPartition;
    if (!computing && own.state != OwnReplica::State::kComputed) return;
    if (!own.ready[partition]) return;
  }
  Send(push, partition);
}

void StepPushes::Send(StepPush& push, uint32_t partition) {
  Frame frame = rules_.MakePush(push, partition);
  frame.loss_scale = step_.loss_scale;
  if (partition == kFiguresPartition) {
    const auto sums = [&](uint32_t i) -> const BatchSums& { return replicas_[push.own_begin + i].sums; };
    frame.figures = context_.FiguresOf(push.node, step_.number, sums).SerializeAsString();
  }
  context_.requests.Send(push.requests[partition], push.node.first + 1, std::move(frame));
}

void StepPushes::PushFinal(OwnReplica& own, uint32_t partition_begin, uint32_t partition_end) {
  static_assert(kFiguresPartition == 0);
  const uint32_t begin =
      own.state == OwnReplica::State::kComputed ? partition_begin : std::max(partition_begin, kFiguresPartition + 1);
  StepPush& push = PushOf(own);
  for (uint32_t p = begin; p < partition_end; ++p) TrySend(push, p);
  if (begin < partition_end) rules_.OnPushed(own, begin, partition_end);
}

void StepPushes::OnSummed(const GradientSummed& event) {
  const OwnReplica* joined = replicas_.FindJoined(event.joint);
  if (joined == nullptr) return;  // its replicas were computed again
  const size_t first = replicas_.PlaceOf(*joined);
  StepPush& push = PushOf(*joined);
  const uint32_t end = std::min<uint32_t>(event.partition_end, context_.assignment.parts.size());
  for (uint32_t p = event.partition_begin; p < end; ++p) {
    push.summed_in[p] = static_cast<int32_t>(first - push.own_begin);
    for (size_t i = push.own_begin; i < push.own_begin + push.node.count; ++i) replicas_[i].ready[p] = 1;
  }
  PushFinal(replicas_[first], event.partition_begin, end);
}

StepPush& StepPushes::PushOf(const OwnReplica& own) {
  const size_t place = replicas_.PlaceOf(own);
  for (StepPush& push : pushes_) {
    if (place >= push.own_begin && place < push.own_begin + push.node.count) return push;
  }
  CAIRN_CHECK(false, "every own replica is in one push");
  return pushes_.front();
}

// ---- answers ----

StepPushes::Answer StepPushes::OnReply(RequestName name, Reply& reply) {
  if (name.owner == kClipOwner) return OnAnswer(clips_.request(name.partition), nullptr, name.partition, reply);
  for (StepPush& push : pushes_) {
    if (push.node.first + 1 == name.owner) return OnAnswer(push.requests[name.partition], &push, name.partition, reply);
  }
  return Answer::kIgnored;
}

StepPushes::Answer StepPushes::OnAnswer(Request& request, StepPush* push, uint32_t partition, Reply& reply) {
  if (request.token != reply.request || request.state != Request::State::kSent) return Answer::kIgnored;
  const uint64_t expected = static_cast<uint64_t>(step_.number) + 1;
  const bool norms = push != nullptr && reply.frame.ok() && reply.frame->kind == v1::ExchangeFrame::NORMS &&
                     reply.frame->sequence == expected;
  absl::Status status = reply.frame.status();
  if (status.ok() && !norms) status = rules_.CheckAnswer(*reply.frame, partition);
  if (status.ok() && !norms) status = context_.frames.CheckLossScale(*reply.frame);
  if (status.ok() && !norms && reply.frame->version < expected) {
    status = absl::UnavailableError("the answer to a push shows values from before it");
  }
  std::vector<uint32_t> known;  // the partitions whose factors became known
  if (status.ok() && (norms || reply.frame->version == expected)) {
    auto taken = clips_.Take(*reply.frame, partition);
    status = taken.ok() ? absl::OkStatus() : absl::UnavailableError(taken.status().message());
    if (taken.ok()) known = *std::move(taken);
  }
  if (!status.ok()) return OnRefused(request, push, partition, status);
  if (norms) {
    request = Request();
    clips_.Send(known, done_);
    return Answer::kIgnored;
  }
  return reply.frame->version > expected ? Answer::kBeyond : OnUpdate(*reply.frame, partition, known);
}

StepPushes::Answer StepPushes::OnRefused(Request& request, StepPush* push, uint32_t partition,
                                         const absl::Status& status) {
  if (absl::IsOutOfRange(status)) return Answer::kGone;
  if (push != nullptr) {
    rules_.OnPushFailed(*push, partition, status);
  } else if (absl::IsAborted(status)) {
    LoseSum(partition);
  } else {
    context_.requests.Retry(request, partition, status);
  }
  return Answer::kIgnored;
}

StepPushes::Answer StepPushes::OnUpdate(const Frame& frame, uint32_t partition, const std::vector<uint32_t>& known) {
  if (done_count_ > 0 && frame.loss_scale != next_loss_scale_) {
    context_.output.Fail(absl::StrCat("the partitions differ in the loss scale after step ", step_.number, ": ",
                                      frame.loss_scale, " in partition ", partition, ", ", next_loss_scale_,
                                      " in others; resume from a checkpoint"));
    return Answer::kIgnored;
  }
  next_loss_scale_ = frame.loss_scale;
  done_[partition] = 1;
  ++done_count_;
  clips_.End(partition);
  for (StepPush& each : pushes_) each.requests[partition] = Request();
  if (!AllDone()) clips_.Send(known, done_);
  return Answer::kUpdated;
}

void StepPushes::LoseSum(uint32_t partition) {
  clips_.Forget(partition);
  rules_.OnSumLost(partition);
}

// ---- retries ----

void StepPushes::ResendClips(const std::vector<char>& moved, bool raised) {
  for (uint32_t p = 0; p < clips_.partitions(); ++p) {
    if (moved[p] && clips_.Has(p) && !done_[p]) {
      LoseSum(p);
    } else {
      clips_.Resend(p, moved[p] != 0, raised);
    }
  }
}

void StepPushes::ResendPushes(const std::vector<char>& moved, bool raised) {
  for (StepPush& push : pushes_) {
    for (uint32_t p = 0; p < push.requests.size(); ++p) {
      if (!context_.requests.ResendAtOnce(push.requests[p], moved[p] != 0, raised)) continue;
      push.requests[p].attempt = 0;
      Send(push, p);
    }
  }
}

bool StepPushes::ForgetMoved(const StepPush& push, const std::vector<char>& moved) {
  std::vector<Request>& requests = pushes_[static_cast<size_t>(&push - pushes_.data())].requests;
  bool any = false;
  for (uint32_t p = 0; p < requests.size(); ++p) {
    if (requests[p].state != Request::State::kSent || !moved[p]) continue;
    requests[p] = Request();
    any = true;
  }
  return any;
}

void StepPushes::ResendDue() {
  for (StepPush& push : pushes_) {
    for (uint32_t p = 0; p < push.requests.size(); ++p) {
      if (context_.requests.Due(push.requests[p])) Send(push, p);
    }
  }
  clips_.ResendDue();
}

}  // namespace cairn::replica
