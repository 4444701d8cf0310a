#include "tests/sim/exchange.h"

#include "tests/sim/sim_ps.h"

namespace cairn::sim {

std::string Describe(const Frame& f) {
  std::string text = absl::StrFormat("%s %d/%d", v1::ExchangeFrame::Kind_Name(f.kind), f.partition.value, f.request_id);
  if (f.generation.value > 0) absl::StrAppendFormat(&text, " generation %d", f.generation.value);
  if (f.replica_count > 0) absl::StrAppendFormat(&text, " replicas %d+%d", f.replica_first.value, f.replica_count);
  if (f.sequence > 0) absl::StrAppendFormat(&text, " sequence %d", f.sequence);
  if (f.version > 0) absl::StrAppendFormat(&text, " version %d", f.version);
  if (f.tensors > 0) absl::StrAppendFormat(&text, " tensor %d of %d", f.tensor, f.tensors);
  if (f.want_version) absl::StrAppendFormat(&text, " wants %d", *f.want_version);
  if (f.kind == v1::ExchangeFrame::ERROR) absl::StrAppend(&text, " ", f.status.ToString());
  return text;
}

void Exchange::Open() {
  if (stream_ != nullptr) return;
  stream_ = network_.Dial(dialer_, ps_->host());
  reached_ = ps_->up() && network_.Reaches(dialer_, ps_->host());
  stream_->OnBroken(Stream::kDialer, [self = shared_from_this()] { self->Broken(); });
}

void Exchange::Send(Frame frame, Done done) {
  std::vector<Frame> one;
  one.push_back(std::move(frame));
  SendAll(std::move(one), std::move(done));
}

void Exchange::SendAll(std::vector<Frame> frames, Done done) {
  Open();
  outstanding_[++last_request_] = std::move(done);
  for (Frame& frame : frames) {
    frame.request_id = last_request_;
    if (world_.tracing()) world_.Trace("%s -> %s: %s", dialer_.name, ps_->name(), Describe(frame));
    const bool worker_request = frame.kind == v1::ExchangeFrame::PUSH || frame.kind == v1::ExchangeFrame::PULL ||
                                frame.kind == v1::ExchangeFrame::CLIP;
    if (worker_request && world_.rng.Chance(network_.faults.repeated)) {
      // Delivered again much later, whatever has become of the stream. Its answer is dropped.
      world_.After(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(800)),
                   [ps = ps_, process = ps_->host().process, frame = CopyOverWire(frame)]() mutable {
                     if (ps->up() && ps->host().process == process) ps->OnFrame(nullptr, std::move(frame));
                   });
    }
    stream_->Send(
        Stream::kDialer, [self = shared_from_this(), stream = stream_, frame = CopyOverWire(frame)]() mutable {
          self->ps_->OnFrame(
              std::make_shared<PsClient>(PsClient{stream, [self](Frame answer) { self->OnFrame(std::move(answer)); }}),
              std::move(frame));
        });
  }
}

void Exchange::OnFrame(Frame frame) {
  if (broken_) return;
  auto found = outstanding_.find(frame.request_id);
  if (found == outstanding_.end()) return;
  const bool more = frame.kind == v1::ExchangeFrame::IMAGE && frame.tensor + 1 < frame.tensors;
  Done done = more ? found->second : std::move(found->second);
  if (!more && !leaks_) outstanding_.erase(found);
  if (!done) return;
  if (frame.kind == v1::ExchangeFrame::ERROR && !error_frames_) return done(frame.status);
  done(std::move(frame));
}

void Exchange::Broken() {
  if (std::exchange(broken_, true)) return;
  const auto self = shared_from_this();
  if (on_broken_) std::exchange(on_broken_, nullptr)();
  for (auto& [id, done] : std::exchange(outstanding_, {})) {
    if (done) done(absl::UnavailableError("the stream broke"));
  }
}

void Exchange::Cancel() {
  const auto self = shared_from_this();
  const auto outstanding = std::exchange(outstanding_, {});
  Close();
  for (const auto& [id, done] : outstanding) {
    if (done) done(absl::CancelledError("the connection is closed"));
  }
}

void Exchange::Close() {
  const auto self = shared_from_this();
  broken_ = true;
  on_broken_ = nullptr;
  const auto forgotten = std::exchange(outstanding_, {});
  if (stream_ != nullptr) stream_->Close(Stream::kDialer);
}

}  // namespace cairn::sim
