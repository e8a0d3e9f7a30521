#include "queue.hpp"

namespace prun::cuda {

CudaQueue::CudaQueue(std::string name, bool urgent, bool waits) : name_(std::move(name)), waits_(waits) {
  int least = 0, greatest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  cuda::check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least),
              "making a stream");
}

CudaQueue::~CudaQueue() { cudaStreamDestroy(stream_); }

void CudaQueue::run(const Piece& piece) {
  for (const NamedWork& named : piece) try {
      named.work(stream_);
      if (waits_) cuda::check(cudaStreamSynchronize(stream_), "running it");
    } catch (const Error& error) {
      throw_error(error.code(), "queue '", name_, "', op '", named.op, "', layer ", named.layer, ": ",
                  error.what());
    }
}

void CudaQueue::check() {
  constexpr std::chrono::microseconds often{500};
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep asked = asked_.load(std::memory_order_relaxed);
  if (now - asked < std::chrono::duration_cast<Clock::duration>(often).count() ||
      !asked_.compare_exchange_strong(asked, now))
    return;
  const cudaError_t status = cudaStreamQuery(stream_);
  if (status == cudaSuccess || status == cudaErrorNotReady) return;
  throw_error(ErrorCode::internal, "device cuda: work on queue '", name_,
              "' failed: ", cudaGetErrorString(status),
              "; set device.wait_after_each_op = true to learn which op it is");
}

}  // namespace prun::cuda
