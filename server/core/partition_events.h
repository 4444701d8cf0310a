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
  bool backup = false;                   // this copy is a backup
  std::vector<v1::BackupRoute> backups;  // of the primary
  bool keep = false;                     // PartitionConfig::keep
  bool ended = false;                    // PartitionConfig::ended; for good
  bool goes_back = false;                // the job falls back: a copy that is not in sync may have been dropped
};
// Primary: a stream to a backup's ps, which may serve many partitions. Each stream has a higher epoch than all before
// it.
struct LinkUpEvent {
  std::string address;
  uint64_t epoch = 0;
};
struct LinkDownEvent {  // unanswered requests on the stream will not be answered
  std::string address;
  uint64_t epoch = 0;
};
struct PeerFrameEvent {  // the answer to a PeerSend: ACK or ERROR, with its request_id
  std::string address;
  uint64_t epoch = 0;
  Frame frame;
};
// The driver has room for the images of this partition's backups, and image_to_send() is true. All backups that want an
// image get it.
struct SendImageEvent {};
struct PersistedEvent {  // all entries up to and including this version are in the store
  uint64_t version = 0;
};
struct ResetEvent {  // the state of PartitionEffects::reset has replaced all stored state
  uint64_t version = 0;
};
// The driver has room for an image and image_due() is true. Images of many partitions fall due in the same step: the
// driver takes them one after another, so that the copies of their slots do not add up in memory.
struct TakeImageEvent {};
struct ImageWrittenEvent {  // ok: it is in the store
  uint64_t version = 0;
  bool ok = true;
};
struct LoadedEvent {  // the result of Persistence::Recover for PartitionEffects::load
  PartitionState state;
};
// The coordinator has stored the figures of the epochs below `epochs`, and wants a report of the others now.
struct FiguresStoredEvent {
  int32_t epochs = 0;
  uint64_t question = 0;  // FiguresStored.question; 0: no question, the report is just sent again
};
struct ClientGoneEvent {  // its waiting requests are dropped; gradients that it pushed stay
  uint64_t client = 0;
};
// About once a second, and at PartitionEffects::wake_at: ends waits, retries, reports lost backups.
struct TickEvent {
  std::map<std::string, PeerState> peers;  // by address, if known
};
using PartitionEvent = std::variant<FrameEvent, AssignEvent, LinkUpEvent, LinkDownEvent, PeerFrameEvent, SendImageEvent,
                                    PersistedEvent, ResetEvent, TakeImageEvent, ImageWrittenEvent, LoadedEvent,
                                    FiguresStoredEvent, ClientGoneEvent, TickEvent>;

// ---- effects ----

struct PartitionReply {
  uint64_t client = 0;
  Frame frame;  // VALUES, IMAGE, ACK or ERROR; the payload is whole and shared
};
// One request to a backup: a REPLICATE, or all IMAGE frames of an image. It is sent on that stream, in order; if the
// stream is gone it is dropped. request_id is unique only within this core: a driver that shares the stream maps it.
struct PeerSend {
  std::string address;
  uint64_t epoch = 0;
  std::vector<Frame> frames;
};
struct Persist {
  v1::LogEntry entry;          // xxh3 is filled in by Persistence
  Buffer gradient;             // the sum, in the type entry.dtype(); empty if entry.examples() == 0. Release it before
                               // PersistedEvent: the update reuses its memory
  uint64_t image_version = 0;  // > 0: that image is complete; the batch also deletes older images and the log up to it
};
// Carry out in this order. No reply depends on a persist or reset of the same effects: replies that do come with
// PersistedEvent and ResetEvent, which are handed in before any other event.
struct PartitionEffects {
  std::vector<PeerSend> sends;
  std::vector<PartitionReply> replies;
  std::optional<Image> reset;  // Persistence::ResetTo, then ResetEvent
  std::vector<Persist> persists;
  std::optional<Image> image;                // write it in the background, then ImageWrittenEvent
  bool load = false;                         // read the values in the background, then LoadedEvent
  std::vector<v1::BackupReport> reports;     // to the coordinator
  std::optional<v1::FiguresReport> figures;  // likewise
  std::vector<std::string> connect;          // addresses: LinkUpEvent when there is a stream (at once if there is one)
  std::optional<absl::Time> wake_at;         // TickEvent at this time; that of earlier effects remains in force
};

}  // namespace cairn
