#include "client/parameter_client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "client/ps_stream.h"
#include "common/base/check.h"

namespace cairn {

PsConnection::PsConnection(std::string address, const PsConnectionOptions& options) {
  const auto outstanding_bytes = std::make_shared<std::atomic<size_t>>(0);
  for (int i = 0; i < std::max(options.streams, 1); ++i) {
    streams_.push_back(std::make_shared<PsStream>(address, options, outstanding_bytes));
  }
}

PsConnection::~PsConnection() {
  for (const auto& stream : streams_) stream->Close();
}

bool PsConnection::connected() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->connected(); });
}

void PsConnection::Send(Frame request, Done done) { Snapshot(std::move(request), nullptr, std::move(done)); }

void PsConnection::Send(std::vector<Frame> request, Done done) {
  CAIRN_CHECK(!request.empty(), "a request without frames");
  PsStream& stream = *streams_[request.front().partition.value % streams_.size()];
  stream.Send(std::move(request), nullptr, std::move(done));
}

void PsConnection::Snapshot(Frame request, OnTensor on_tensor, Done done) {
  PsStream& stream = *streams_[request.partition.value % streams_.size()];
  std::vector<Frame> frames;
  frames.push_back(std::move(request));
  stream.Send(std::move(frames), std::move(on_tensor), std::move(done));
}

}  // namespace cairn
