#include "queue.hpp"

#include <thread>

#include "cuda/stopwatch.hpp"
#include "streams.hpp"

namespace prun::cuda {

CudaQueue::CudaQueue(std::string name, const Settings& settings, const Driver& driver)
    : name_(std::move(name)), settings_(settings), room_(driver) {
  const auto [least, greatest] = priorities();
  stream_ = make_stream(settings.urgent ? greatest : (least + greatest) / 2);
}

CudaQueue::~CudaQueue() { cudaStreamDestroy(stream_); }

Piece& CudaQueue::add(std::vector<NamedWork> works) {
  Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
  if (settings_.graphs && settings_.others) keep_to_kernels(works);
  for (NamedWork& named : works) {
    if (piece.empty() || !named.captures || !piece.back().works.back().captures) piece.emplace_back();
    piece.back().works.push_back(std::move(named));
  }
  for (Stretch& stretch : piece) {
    if (settings_.graphs && !settings_.waits && stretch.works.size() > 1)
      choose_form(stretch);
    else if (!settings_.waits)
      stretch.works.front().captures ? load(stretch) : try_once(stretch);
    for (NamedWork& named : stretch.works)
      named = {std::move(named.op), named.layer, std::move(named.work), named.captures};
  }
  return piece;
}

void CudaQueue::keep_to_kernels(std::vector<NamedWork>& works) {
  for (NamedWork& named : works) {
    if (!named.captures) continue;
    const auto [known, unknown] = kernels_alone_.try_emplace(named.kind, false);
    if (unknown)
      known->second = enqueues_kernels_alone(stream_, [&] { run_work(named, named.work, stream_); });
    named.captures = known->second;
  }
}

// Kernels are loaded when they are first wanted, which may wait for all that runs, a pending exchange
// included: so it must not be in a step. Work that is captured and made a graph is loaded, and has not run.
void CudaQueue::load(Stretch& stretch) {
  const Graph loaded(stream_, [&] { run_works(stretch); });
  stretch.commands = loaded.nodes();
}

// Loads work that cannot be captured, and all else that a library makes when it is first called.
void CudaQueue::try_once(const Stretch& stretch) {
  for (const NamedWork& named : stretch.works)
    if (tried_.insert(named.kind).second) run_work(named, named.work, stream_);
}

// ---------------------------------------------------------------- the form of a stretch

// Where kernels take long there is nothing to gain, and trying would hold up the start.
bool CudaQueue::is_small(const Stretch& stretch) {
  constexpr std::int64_t most_bytes = std::int64_t{32} << 20;
  std::int64_t bytes = 0;
  for (const NamedWork& named : stretch.works)
    for (const Touch& touch : named.touches) bytes += touch.end - touch.begin;
  return bytes / static_cast<std::int64_t>(stretch.works.size()) <= most_bytes;
}

// A graph saves the host's time for each launch, and a little between kernels; with branches, small kernels
// share the GPU.
void CudaQueue::choose_form(Stretch& stretch) {
  constexpr double better = 0.97;
  std::string kinds;
  for (const NamedWork& named : stretch.works) kinds += named.kind + '\n';
  const auto [known, unknown] = known_.try_emplace(kinds, Form::apart);
  Form& form = known->second;
  stretch.graph = graph_of(stretch, form);
  if (!stretch.graph) load(stretch);
  if (unknown && is_small(stretch)) {
    std::unique_ptr<Graph> fastest;
    double best = seconds(stretch);
    for (const Form other : {Form::graph, Form::branched}) {
      if (!(stretch.graph = graph_of(stretch, other))) continue;
      const double taken = seconds(stretch);
      if (taken < better * best) form = other, best = taken, fastest = std::move(stretch.graph);
    }
    stretch.graph = std::move(fastest);
  }
  ++forms_[form];
}

// Returns null for a form that has no graph.
std::unique_ptr<Graph> CudaQueue::graph_of(Stretch& stretch, Form form) {
  if (form == Form::apart) return nullptr;
  if (form == Form::graph) return std::make_unique<Graph>(stream_, [&] { run_works(stretch); });
  constexpr std::size_t worth_it = 32;  // a launch with branches takes the host longer
  if (settings_.others || stretch.works.size() < worth_it) return nullptr;
  const std::vector<Branch> branches = branches_of(stretch.works);
  if (branches.empty()) return nullptr;
  if (!side_) side_.emplace();
  std::vector<Work> works;
  for (std::size_t i = 0; i < branches.size(); ++i)
    works.push_back(branches[i].beside ? stretch.works[i].bind_to(side_->workspace())
                                       : stretch.works[i].work);
  const auto run = [&](std::size_t i, Stream stream) { run_work(stretch.works[i], works[i], stream); };
  return std::make_unique<Graph>(stream_, [&] { side_->run_branched(stream_, branches, run); });
}

double CudaQueue::seconds(const Stretch& stretch) {
  constexpr int runs = 10;
  run(stretch);
  return Stopwatch(stream_)([&] { run(stretch); }, runs);
}

// ---------------------------------------------------------------- running

void CudaQueue::run(const Piece& piece) {
  for (const Stretch& stretch : piece) run(stretch);
}

void CudaQueue::run(const Stretch& stretch) {
  if (stretch.graph) {
    make_room(1);
    return stretch.graph->run(stream_);
  }
  constexpr std::int64_t of_a_library = 8;  // applies where they cannot be counted: cuDNN gives fewer
  const auto works = static_cast<std::int64_t>(stretch.works.size());
  const std::int64_t each = stretch.commands > 0 ? (stretch.commands + works - 1) / works : of_a_library;
  for (const NamedWork& named : stretch.works) {
    make_room(each);
    run_work(named, named.work, stream_);
  }
}

void CudaQueue::make_room(std::int64_t commands) {
  // Hundreds of commands are then left to run, of some microseconds each.
  const auto pause = [this] {
    check();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  room_.take(stream_, commands, pause);
}

void CudaQueue::run_works(const Stretch& stretch) {
  for (const NamedWork& named : stretch.works) run_work(named, named.work, stream_);
}

void CudaQueue::run_work(const NamedWork& named, const Work& work, Stream stream) {
  try {
    work(stream);
    if (settings_.waits) cuda::check(cudaStreamSynchronize(stream), "running it");
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

std::string forms_text(const std::vector<std::unique_ptr<CudaQueue>>& queues) {
  std::map<Form, int> forms;
  for (const auto& queue : queues)
    for (const auto& [form, count] : queue->forms()) forms[form] += count;
  const int graphs = forms[Form::graph] + forms[Form::branched];
  if (graphs + forms[Form::apart] == 0) return {};
  return "of " + std::to_string(graphs + forms[Form::apart]) + " rows of kernels " + std::to_string(graphs) +
         " run as CUDA graphs, " + std::to_string(forms[Form::branched]) +
         " of these with weight gradients beside the rest";
}

}  // namespace prun::cuda
