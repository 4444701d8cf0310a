// The allowed transitions between the states of a job. Every change goes through JobTable::Transition, which refuses
// and logs any other.
//
//   QUEUED       -> STARTING, or its end before it ran: FAILED, CANCELLED
//   STARTING     -> RUNNING; FINALIZING with the weights of its best epoch; STARTING from another checkpoint
//   RUNNING      -> FINALIZING; STARTING from a checkpoint (a copy is lost, or the best epoch's weights are restored)
//   FINALIZING   -> SUCCEEDED, ENDED_WITH_ERRORS; RUNNING or STARTING where steps have to be repeated
//   each of them -> FAILED, CANCELLED
//
// A final state is never left.
#pragma once

#include "cairn/v1/job_status.pb.h"

namespace cairn {

bool MayFollow(v1::JobState from, v1::JobState to);

}  // namespace cairn
