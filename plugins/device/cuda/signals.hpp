// Queues signal each other through these: events of the driver, and numbers in memory that the GPU writes and
// waits for.
#pragma once

#include "prun/device.hpp"
#include "queue.hpp"

namespace prun::cuda {

// These functions must be called while the GPU is current.
QueueEvent create_event();
void record(CudaQueue& queue, QueueEvent event);
void wait(CudaQueue& queue, QueueEvent event);
void write_counter(const Driver& driver, CudaQueue& queue, Counter* counter, std::uint64_t value);
void wait_counter(const Driver& driver, CudaQueue& queue, const Counter* counter, std::uint64_t value);

}  // namespace prun::cuda
