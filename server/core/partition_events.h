// The events and effects of PartitionCore (partition_core.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/tensor/frame.h"
#include "server/core/backup_link.h"
#include "server/core/partition_image.h"
#include "server/core/partition_state.h"

namespace cairn {

// ---- events ----

struct FrameEvent {  // a whole request of this job and partition
  // The stream to answer; never used again after ClientGoneEvent. A stream opened later has a greater number.
  uint64_t client = 0;
  Frame frame;
};
// The coordinator's new assignment; a lower generation is ignored. A role changes only with a higher one.
struct AssignEvent {
  Generation generation;
  bool backup = false;                   // this copy follows
  std::vector<v1::BackupRoute> backups;  // of the primary
  bool keep = false;                     // PartitionConfig::keep
  bool ended = false;                    // PartitionConfig::ended; for good
  bool goes_back = false;                // the job falls back: a copy that is not in sync may have been dropped
};
// Primary: the stream to a backup's ps, which may serve many partitions. Every stream has an epoch greater than those
// before.
struct LinkUpEvent {
  std::string address;
  uint64_t epoch = 0;
};
struct LinkDownEvent {  // what was sent on it and not answered is not answered any more
  std::string address;
  uint64_t epoch = 0;
};
struct PeerFrameEvent {  // the answer to a PeerSend: ACK or ERROR, with its request_id
  std::string address;
  uint64_t epoch = 0;
  Frame frame;
};
// The driver has room for the images of this partition's backups, and image_to_send() says yes. All that want one get
// it.
struct SendImageEvent {};
struct PersistedEvent {  // all entries up to and including this version are in the store
  uint64_t version = 0;
};
struct ResetEvent {  // the state of PartitionEffects::reset is in the store, in place of all that was there
  uint64_t version = 0;
};
// The driver has room for an image and image_due() says yes. Images of many partitions fall due in the same step: the
// driver takes them one after another, so that the copies of their slots do not add up.
struct TakeImageEvent {};
struct ImageWrittenEvent {  // ok: it is in the store
  uint64_t version = 0;
  bool ok = true;
};
struct LoadedEvent {  // what Persistence::Recover gave for PartitionEffects::load
  PartitionState state;
};
// The coordinator has stored the figures of the epochs below `epochs`, and wants to know of the others now.
struct FiguresStoredEvent {
  int32_t epochs = 0;
  uint64_t question = 0;  // FiguresStored.question; 0: nobody asks, the report is sent again
};
struct ClientGoneEvent {  // its waiting requests are forgotten; what it contributed stays
  uint64_t client = 0;
};
// About once a second, and at PartitionEffects::wake_at: ends waits, tries again, says who is lost.
struct TickEvent {
  std::map<std::string, PeerState> peers;  // by address, where that is known
};
using PartitionEvent = std::variant<FrameEvent, AssignEvent, LinkUpEvent, LinkDownEvent, PeerFrameEvent, SendImageEvent,
                                    PersistedEvent, ResetEvent, TakeImageEvent, ImageWrittenEvent, LoadedEvent,
                                    FiguresStoredEvent, ClientGoneEvent, TickEvent>;

// ---- effects ----

struct PartitionReply {
  uint64_t client = 0;
  Frame frame;  // VALUES, IMAGE, ACK or ERROR; the payload is whole and shared
};
// One request to a backup: a REPLICATE, or all IMAGE frames of an image. It goes out on that stream, in order, or not
// at all where the stream is gone. request_id is unique for this core alone: a driver whose stream serves many maps it.
struct PeerSend {
  std::string address;
  uint64_t epoch = 0;
  std::vector<Frame> frames;
};
struct Persist {
  v1::LogEntry entry;  // xxh3 is filled in by Persistence
  Buffer gradient;     // the sum, in the type entry.dtype(); empty where entry.examples() == 0. Let go of it before
                       // PersistedEvent: the update reuses its memory
  uint64_t image_version = 0;  // > 0: that image is complete; older ones and the log up to it go in the same batch
};
// Carry out in this order. No reply depends on a persist or a reset of the same effects: those that do come with
// PersistedEvent and ResetEvent. Both are handed in before any other event.
struct PartitionEffects {
  std::vector<PeerSend> sends;
  std::vector<PartitionReply> replies;
  std::optional<Image> reset;  // Persistence::ResetTo, then ResetEvent
  std::vector<Persist> persists;
  std::optional<Image> image;                // to be written in the background, then ImageWrittenEvent
  bool load = false;                         // the values are wanted: to be read in the background, then LoadedEvent
  std::vector<v1::BackupReport> reports;     // to the coordinator
  std::optional<v1::FiguresReport> figures;  // likewise
  std::vector<std::string> connect;   // addresses: LinkUpEvent when there is a stream (at once where there is one)
  std::optional<absl::Time> wake_at;  // TickEvent then; one from earlier effects still stands
};

}  // namespace cairn
