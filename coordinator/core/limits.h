// All limits of the coordinator, their reasons, and how they depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/limits.h"
#include "common/model/limits.h"

namespace cairn {

// ---- nodes ----

// The limit of a Kubernetes label.
inline constexpr size_t kNodeNameBytesMax = 63;
// Address, host, device, fingerprint.
inline constexpr size_t kNodeTextBytesMax = 1024;
inline constexpr int32_t kNodeSlotsMax = 1024;
// Sessions from one machine: the others always have room among kNodesMax.
inline constexpr int32_t kSessionsOfMachineMax = 512;
static_assert(kSessionsOfMachineMax * 4 < kNodesMax);
inline constexpr int kComputeTypesMax = 16;
// That a worker has: a process has a few.
inline constexpr int kNodeProgramsMax = 64;
// The fault that a ps reports of its store.
inline constexpr size_t kFaultTextMax = 500;

// ---- jobs ----

inline constexpr size_t kRequestKeyBytesMax = 128;
// The memory of the specs of all jobs that are kept, with their models: some of the largest, thousands of usual ones.
inline constexpr size_t kJobSpecsBytesMax = size_t{256} << 20;
static_assert(kJobSpecsBytesMax >= 16 * static_cast<size_t>(kControlMessageBytesMax));
// What a node of a submission's graph takes beside its layer, with its variables: 1 to 2.5 KB were measured.
inline constexpr size_t kGraphNodeBytes = 2560;
// Jobs whose data nobody has seen are checked anew when a worker is asked for them, in up to 20 ms for the largest
// models: no more of them in a tick.
inline constexpr int kInspectionsOfTickMax = 16;
// Unless --max-job-parameters says otherwise: 16 GiB of float32 numbers, and as much for each slot of the optimizer.
inline constexpr int64_t kJobParametersDefault = int64_t{1} << 32;
static_assert(kJobParametersDefault <= kParametersMax);
inline constexpr size_t kRepliesOfOneKeyMax = 16;
inline constexpr uint64_t kDataExamplesMax = uint64_t{1} << 40;
inline constexpr int64_t kStepsPerEpochMax = int64_t{1} << 41;
// A hundred years.
inline constexpr int64_t kEndedAgeSecondsMax = int64_t{100} * 365 * 24 * 3600;
inline constexpr int kEndedJobsMax = 1000;
inline constexpr int64_t kAssignBytesMax = kControlMessageBytesMax - (64 << 10);
inline constexpr int kCrashesAtOneStepMax = 3;
inline constexpr int kEvaluatorFailuresMax = 3;
inline constexpr absl::Duration kStragglerFastForMax = absl::Minutes(32);
// Checkpoints of other jobs that a job's chiefs have renamed: events of the job, of which 100 are kept.
inline constexpr size_t kSetAsideToldMax = 10;
// A directory, and a checkpoint in it.
inline constexpr size_t kCheckpointPathBytesMax = kPathBytesMax + 64;
inline constexpr uint64_t kGenerationsAheadMax = 1 << 20;

// ---- copies ----

inline constexpr int kCopiesSyncingMax = 32;
inline constexpr int kPartitionsMovingMax = 4;
inline constexpr int kEndedCopiesSyncingMax = 32;
inline constexpr int kEndedCopiesSyncingPerPsMax = 8;
inline constexpr absl::Duration kLinkTryAgainMax = absl::Minutes(5);
inline constexpr int kLinkDoublingsMax = 8;

// ---- evaluation, epochs, files ----

inline constexpr int64_t kEvaluationBlockBytesMax = int64_t{1} << 20;
// Of a name of an input in a block (PredictBlock.inputs): a file below a split's and a class's folder, each part of at
// most 255 bytes; a number of at most 20 digits; with its length before it.
inline constexpr int64_t kInputFileBytesMax = 528;
inline constexpr int64_t kInputNumberBytesMax = 22;
// Blocks: 64 MiB of outputs and names.
inline constexpr uint32_t kEvaluationWindowMax = 64;
inline constexpr absl::Duration kPsAwayMax = absl::Seconds(30);
inline constexpr size_t kOpenValidationsMax = 64;
inline constexpr absl::Duration kFiguresWaitMax = absl::Seconds(3);
// Unanswered questions of one job; older ones are forgotten.
inline constexpr size_t kFiguresQuestionsMax = 64;
// Attempts to write one model file.
inline constexpr int kSaveTriesMax = 4;
inline constexpr size_t kSavesMax = 64;
inline constexpr size_t kStepFiguresMax = 1000;
// Digests of steps of one job, for `cairn replay`: 10 KiB.
inline constexpr int kStepDigestsKept = 200;

// ---- events ----

// In memory, of the whole cluster: days of a quiet one.
inline constexpr size_t kClusterEventsKept = 4096;
inline constexpr size_t kClusterEventsBytesKept = size_t{2} << 20;
// Refusals of nodes that are told at once. Then one is told in each kRefusalsTime, with how many were left out: who
// tries names at random writes a few hundred events a day, and does not push out the others.
inline constexpr int kRefusalsToldMax = 30;
inline constexpr absl::Duration kRefusalsTime = absl::Minutes(10);
// Nodes of which the last reason is known; and refusals by certificate that wait for the core, which others follow.
inline constexpr size_t kRefusalsKept = 1000;
inline constexpr size_t kRefusalsPostedMax = 64;
// Of them on the pages.
inline constexpr int kDashboardEventsMax = 1000;
static_assert(2 * kClusterEventsBytesKept <= static_cast<size_t>(kControlMessageBytesMax), "one answer has them all");

// ---- logs of nodes ----

// Answers that are awaited, each of at most kLogAnswerBytesMax.
inline constexpr size_t kLogReadsMax = 64;
// All of them fit the queue of the node's session.
inline constexpr int kLogReadsOfNodeMax = 4;
inline constexpr absl::Duration kLogReadTimeout = absl::Seconds(5);
// Pages that wait for one at the same time; and lines of a page.
inline constexpr int kLogPagesMax = 8;
inline constexpr int32_t kLogPageLinesDefault = 200;
inline constexpr int32_t kLogPageLinesMax = 1000;

// ---- traces ----

// Jobs that are traced at a time, by all users.
inline constexpr size_t kTracesMax = 16;
// Answers that are awaited, each of at most kTraceAnswerSpansMax spans.
inline constexpr size_t kTraceReadsMax = 64;
// All of them fit the queue of the node's session.
inline constexpr int kTraceReadsOfNodeMax = 4;
inline constexpr absl::Duration kTraceReadTimeout = absl::Seconds(5);
// A trace that nobody has read for so long ends.
inline constexpr absl::Duration kTraceUnreadMax = absl::Seconds(kTraceIdleSeconds);
static_assert(kTraceReadTimeout < kTraceUnreadMax, "one node that does not answer does not end a trace");

// ---- texts: bytes, and things named ----

// A node's report of a failure.
inline constexpr size_t kErrorTextMax = 4000;
inline constexpr size_t kNoteTextMax = 1000;
inline constexpr size_t kEventTextMax = 500;
inline constexpr size_t kFileErrorTextMax = 1000;
inline constexpr size_t kVariableNameTextMax = 200;
inline constexpr size_t kPathShownMax = 200;
// Shown as long as the job runs.
inline constexpr size_t kLeftOutTextMax = 500;
inline constexpr size_t kLostTextMax = 200;
inline constexpr size_t kNamesInReasonMax = 3;
inline constexpr size_t kDegradedNamesMax = 5;
// In one message.
inline constexpr size_t kJobsNamedMax = 10;

// Bearer tokens: all, and those of one user; 400 bytes each.
inline constexpr size_t kTokensMax = 10000;
inline constexpr size_t kTokensOfUserMax = 100;
// Expired ones are listed for so long.
inline constexpr absl::Duration kTokensKeptAfterExpiry = absl::Hours(24 * 30);
// How long a token holds: at least, at most, and if its maker does not say.
inline constexpr absl::Duration kTokenLifetimeMin = absl::Minutes(1);
inline constexpr absl::Duration kTokenLifetimeMax = absl::Hours(24 * 366);
inline constexpr absl::Duration kTokenLifetimeDefault = absl::Hours(24 * 90);

// Jobs of one user that have not ended, unless a line of --quotas says another number of jobs: one user alone does not
// take all the places that there are (kJobsQueuedMax) from the others.
inline constexpr int32_t kJobsOfUserDefault = kJobsQueuedMax / 2;
static_assert(kJobsOfUserDefault > 0 && kJobsOfUserDefault < kJobsQueuedMax);
// A file of quotas: 10,000 lines; and how often it is looked at.
inline constexpr size_t kQuotaFileBytesMax = size_t{1} << 20;
inline constexpr absl::Duration kQuotaFileRefresh = absl::Seconds(2);

// ---- the driver, its store and pages ----

inline constexpr size_t kDriverCallsMax = 4096;
inline constexpr size_t kDriverWatchersMax = 2048;
// Of one machine, so that it leaves some to others.
inline constexpr size_t kDriverCallsOfMachineMax = 1024;
inline constexpr size_t kDriverWatchersOfMachineMax = 1024;
static_assert(kDriverCallsOfMachineMax * 4 <= kDriverCallsMax && kDriverWatchersOfMachineMax * 2 <= kDriverWatchersMax);
inline constexpr size_t kQuestionsWaitingMax = 64;
inline constexpr size_t kSessionQueueBytesMax = size_t{32} << 20;
inline constexpr size_t kEtcdEndpointsMax = 16;
inline constexpr int kEtcdAnswerBytesMax = 64 << 20;
inline constexpr absl::Duration kEtcdLeaseTtlMax = absl::Hours(1);
// All values of one transaction.
inline constexpr size_t kEtcdInlineBytesMax = size_t{1} << 20;
// Changes of one batch; each takes at most two operations.
inline constexpr size_t kEtcdChangesMax = 50;
inline constexpr size_t kEtcdValueBytesMax = size_t{64} << 20;
// Figures of one row.
inline constexpr size_t kOverviewFiguresMax = 6;
inline constexpr size_t kDashboardRowsMax = 200;
// A job that a page submits: as large as one by gRPC. Its request is larger: kPageBodyBytesMax (dashboard/limits.h).
inline constexpr size_t kPageActionBytesMax = static_cast<size_t>(kControlMessageBytesMax);
// Changes that wait for their answer at the same time, beside kPageSubmissionsMax submissions, and how long: workers
// look at the data of a job that is submitted. Who sent it sends it again with the same request_key.
inline constexpr int kPageActionsMax = 4;
inline constexpr absl::Duration kPageActionWait = absl::Seconds(12);
// Of the server that serves the pages.
inline constexpr int kPageThreads = 16;
static_assert(kLogPagesMax + kPageActionsMax < kPageThreads, "probes and pages are answered while others wait");
// The audit log: a file, and how many before it are kept.
inline constexpr size_t kAuditFileBytesMax = size_t{64} << 20;
inline constexpr size_t kAuditOlderFilesMax = 7;
// Of a line, each text that a caller chooses; callers whose refusals are counted; and how often those are written.
inline constexpr size_t kAuditTextBytesMax = 512;
inline constexpr size_t kAuditCallersMax = 1024;
inline constexpr absl::Duration kAuditRefusalsEvery = absl::Seconds(1);

static_assert(kEndedCopiesSyncingPerPsMax <= kEndedCopiesSyncingMax && kPartitionsMovingMax <= kCopiesSyncingMax);
static_assert(kEventTextMax <= kNoteTextMax && kNoteTextMax <= kErrorTextMax);
static_assert(kEtcdInlineBytesMax <= kEtcdValueBytesMax &&
              kEtcdValueBytesMax <= static_cast<size_t>(kEtcdAnswerBytesMax));
static_assert(kAssignBytesMax < kControlMessageBytesMax);

}  // namespace cairn
