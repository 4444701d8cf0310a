// Frames as messages of shared memory, and how two ends of an Exchange stream agree on it.
//
// Beside its Unix socket PATH a ps listens on PATH.mem (common/shared_memory/handover.h). A client on this host that
// can connect to it asks for memory in the call's metadata; the ps answers in the initial metadata with a ticket, and
// the client fetches the memory with it. From then on all frames of the stream go through the memory, both ways. The
// call stays open: it says who the client is, that both are alive, and how the stream ends.
//
// Thread rule: stateless functions; link and assembler are the caller's.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/rpc/assembler.h"
#include "common/shared_memory/shared_link.h"
#include "common/tensor/frame.h"

namespace cairn {

// client -> ps: kSharedMemoryAsked: give me memory. ps -> client, at once: the ticket; "": none, use this call.
inline constexpr char kSharedMemoryMetadata[] = "cairn-shared-memory";
// The version of what lies in the memory (SharedLink, byte_ring.h): both ends know the same one.
inline constexpr char kSharedMemoryAsked[] = "2";

// The path of the socket where memory is handed over, beside a ps' socket.
inline std::string HandoverPath(const std::string& unix_socket) { return unix_socket + ".mem"; }

// As SharedLink::TryWrite. chunk: with at most kRingPayloadBytesMax of payload.
bool TryWriteFrame(SharedLink* link, const Frame& chunk);

// Decodes one message and adds it to the assembler. Returns the whole frame that it completes, or nothing yet.
// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE; the caller ends the stream with them.
absl::StatusOr<std::optional<Frame>> ReceiveFrame(const RingMessage& message, FrameAssembler* assembler);

}  // namespace cairn
