#include "queue.hpp"

namespace prun::cuda {

CudaQueue::CudaQueue(std::string name, const Settings& settings)
    : name_(std::move(name)), settings_(settings) {
  int least = 0, greatest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  cuda::check(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, settings.urgent ? greatest : least),
      "making a stream");
}

CudaQueue::~CudaQueue() { cudaStreamDestroy(stream_); }

Piece& CudaQueue::add(std::vector<NamedWork> works) {
  Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
  for (NamedWork& named : works) {
    if (piece.empty() || !named.captures || !piece.back().works.back().captures) piece.emplace_back();
    piece.back().works.push_back(std::move(named));
  }
  for (Stretch& stretch : piece)
    if (settings_.graphs && !settings_.waits && stretch.works.size() > 1)
      consider_graph(stretch);
    else if (!settings_.waits && stretch.works.front().captures)
      load(stretch);
  return piece;
}

// Kernels are loaded when they are first wanted, which may wait for all that runs, a pending exchange
// included: so it must not be in a step. What is captured and made a graph is loaded, and has not run.
// cuDNN's plans load theirs when they are made.
void CudaQueue::load(Stretch& stretch) {
  const Graph loaded(stream_, [&] { run_works(stretch); });
}

// A graph saves the host's time for each launch, and a little between kernels. Where kernels take long there
// is nothing to gain.
void CudaQueue::consider_graph(Stretch& stretch) {
  constexpr double long_enough = 1e-3;
  const double apart = seconds(stretch);
  if (apart > long_enough) return;
  stretch.graph = std::make_unique<Graph>(stream_, [&] { run_works(stretch); });
  if (seconds(stretch) > 0.97 * apart) stretch.graph.reset();
}

double CudaQueue::seconds(const Stretch& stretch) {
  constexpr int runs = 3;
  run(stretch);
  cuda::check(cudaStreamSynchronize(stream_), "trying work");
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < runs; ++i) run(stretch);
  cuda::check(cudaStreamSynchronize(stream_), "trying work");
  return std::chrono::duration<double>(Clock::now() - begin).count() / runs;
}

void CudaQueue::run(const Piece& piece) {
  for (const Stretch& stretch : piece) run(stretch);
}

void CudaQueue::run(const Stretch& stretch) {
  if (stretch.graph)
    stretch.graph->run(stream_);
  else
    run_works(stretch);
}

void CudaQueue::run_works(const Stretch& stretch) {
  for (const NamedWork& named : stretch.works) try {
      named.work(stream_);
      if (settings_.waits) cuda::check(cudaStreamSynchronize(stream_), "running it");
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
