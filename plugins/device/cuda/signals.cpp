#include "signals.hpp"

#include "cuda/launch.hpp"

namespace prun::cuda {

QueueEvent create_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return event;
}

void record(CudaQueue& queue, QueueEvent event) {
  queue.make_room(1);
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), queue.stream()), "recording an event");
}

void wait(CudaQueue& queue, QueueEvent event) {
  queue.make_room(1);
  check(cudaStreamWaitEvent(queue.stream(), static_cast<cudaEvent_t>(event), 0), "waiting for an event");
}

void write_counter(const Driver& driver, CudaQueue& queue, Counter* counter, std::uint64_t value) {
  queue.make_room(1);
  driver.check(driver.write_value(queue.stream(), reinterpret_cast<CUdeviceptr>(counter), value,
                                  CU_STREAM_WRITE_VALUE_DEFAULT),
               "writing a counter");
}

void wait_counter(const Driver& driver, CudaQueue& queue, const Counter* counter, std::uint64_t value) {
  queue.make_room(1);
  driver.check(driver.wait_value(queue.stream(), reinterpret_cast<CUdeviceptr>(counter), value,
                                 CU_STREAM_WAIT_VALUE_GEQ),
               "waiting for a counter");
}

}  // namespace prun::cuda
