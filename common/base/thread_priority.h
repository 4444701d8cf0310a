// What may take its time leaves the processor to the training.
#pragma once

namespace cairn {

// The calling thread gets about a tenth of a processor core while threads of normal priority want all of it, and whole
// cores otherwise. Any thread; for good: the system lets nobody but an administrator raise a priority again. Nothing
// happens where the system refuses.
void LowerThreadPriority();

}  // namespace cairn
