// Copies of a JobStatus without what grows with the model, the cluster or the length of the training: those parts are
// never copied.
//
// Pure; any thread.
#pragma once

#include "cairn/v1/job_status.pb.h"

namespace cairn {

// Without the model's layers, the names of classes, the placements and the events. `to` is empty.
void CopyForList(const v1::JobStatus& from, v1::JobStatus* to);

// What a row of the dashboard and /metrics show: as CopyForList, and of the epochs only the last and the last that was
// validated, nothing of the model, of validations beside the epochs, and of notes. `to` is empty.
void CopyForRow(const v1::JobStatus& from, v1::JobStatus* to);

}  // namespace cairn
