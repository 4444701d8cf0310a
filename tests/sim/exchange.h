// An Exchange stream of the data plane, from a worker or a primary (the dialer) to a ps, with whole frames.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "tests/sim/network.h"

namespace cairn::sim {

class SimPs;

// A frame as received from the wire: with a copy of the bytes.
inline Frame CopyOverWire(const Frame& frame) {
  Frame copy = frame;
  copy.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
  return copy;
}

// For traces: "PUSH 3 generation 2 replica 0+2 sequence 7".
std::string Describe(const Frame& frame);

// The dialer's end: requests and their answers, as in client/parameter_client.h. Belongs to one process.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Done = std::function<void(absl::StatusOr<Frame>)>;
  // ps: the process that listens at the address; null if it is gone.
  Exchange(World& world, Network& network, Host& dialer, SimPs* ps)
      : world_(world), network_(network), dialer_(dialer), ps_(ps) {}

  // Called by the first Send if not before.
  void Open();
  // done runs once, in the dialer's process: with the answer, or with UNAVAILABLE when the stream breaks. An IMAGE of
  // several tensors is delivered tensor by tensor.
  void Send(Frame frame, Done done);
  // One request of several frames.
  void SendAll(std::vector<Frame> frames, Done done);
  void Close();   // drops outstanding requests
  void Cancel();  // ends them with CANCELLED
  // Whether there is a stream to a listening process.
  bool connected() const { return stream_ != nullptr && reached_ && !broken_; }
  uint64_t stream_id() const { return stream_ == nullptr ? 0 : stream_->id(); }
  bool broken() const { return broken_; }
  size_t outstanding() const { return outstanding_.size(); }
  // Deliver ERROR frames as frames, not as their status.
  void GiveErrorFrames() { error_frames_ = true; }
  void LeakRequests() { leaks_ = true; }  // PlantedBug::kLeakRequests
  void OnBroken(std::function<void()> fn) { on_broken_ = std::move(fn); }

 private:
  void OnFrame(Frame frame);
  void Broken();

  World& world_;
  Network& network_;
  Host& dialer_;
  SimPs* const ps_;
  std::shared_ptr<Stream> stream_;
  bool reached_ = false, broken_ = false, error_frames_ = false, leaks_ = false;
  uint64_t last_request_ = 0;
  std::map<uint64_t, Done> outstanding_;
  std::function<void()> on_broken_;
};

}  // namespace cairn::sim
