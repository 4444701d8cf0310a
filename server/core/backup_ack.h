// BackupAck: tells the primary that this copy has kept an update or an image.
#pragma once

#include <cstdint>

#include "server/core/copy_context.h"

namespace cairn {

struct BackupAck {
  uint64_t client = 0, request_id = 0, version = 0;
};

inline void GiveAck(CopyContext& copy, const BackupAck& ack) {
  Frame frame = copy.MakeFrame(v1::ExchangeFrame::ACK, ack.request_id);
  frame.version = ack.version;
  copy.Reply(ack.client, std::move(frame));
}

}  // namespace cairn
