// Copies of a JobStatus without the parts that grow with the model, the cluster or the length of the training: those
// are skipped, not copied and cleared.
//
// Pure; any thread.
#pragma once

#include "cairn/v1/job_status.pb.h"

namespace cairn {

// Without the model's layers, the names of classes, the placements and the events. `to` is empty.
void CopyForList(const v1::JobStatus& from, v1::JobStatus* to);

// What a row of the dashboard and /metrics show: as CopyForList, with at most two epochs, the last and the last
// validated one, and without the model, the validations within epochs, and the notes. `to` is empty.
void CopyForRow(const v1::JobStatus& from, v1::JobStatus* to);

}  // namespace cairn
