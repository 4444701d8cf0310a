// The mark of a writer in a checkpoint's place on S3, "step-5/writing-<nonce>.json": it says which job writes objects
// with this nonce in their names. It is there before the first of them, until a manifest names them or all are gone: by
// it the job's next writer knows what a killed one has left.
//
// Pure functions, but for NewNonce; any thread. A mark is not trusted: it chooses no path.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "worker/checkpoint/own_checkpoints.h"

namespace cairn {

std::string NewNonce();

std::string MarkName(absl::string_view nonce);
// Empty: it is no mark's name.
std::string NonceOfMark(absl::string_view name);

std::string EncodeMark(const CheckpointOwner& owner);
// Whether the text is the mark of this job, by the rule of CheckpointOwner::Owns.
bool IsMarkOf(const CheckpointOwner& owner, absl::string_view text);

}  // namespace cairn
