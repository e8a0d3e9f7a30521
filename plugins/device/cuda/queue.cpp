#include "queue.hpp"

#include <thread>

#include "cuda/stopwatch.hpp"
#include "streams.hpp"

namespace prun::cuda {

CudaQueue::CudaQueue(std::string name, const Settings& settings, const Driver& driver)
    : name_(std::move(name)), settings_(settings), driver_(driver), room_(driver) {
  if (settings.names_ops) {
    void* begun = nullptr;
    cuda::check(cudaHostAlloc(&begun, sizeof(std::uint64_t), cudaHostAllocMapped),
                "a number for the op that runs");
    begun_.reset(static_cast<std::uint64_t*>(begun));
    *begun_ = 0;
    settings_.graphs = false;  // a graph has no ops any more
  }
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
    if (settings_.graphs && stretch.works.size() > 1)
      choose_form(stretch);
    else if (!settings_.names_ops)
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
    if (tried_.insert(named.kind).second) {
      clear_whole_numbers(named);
      run_work(named, named.work, stream_);
    }
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

// Other values have had the memory that a trial reads, so it holds any bytes. Kernels that take places from
// whole numbers would write anywhere by those, over the code of other kernels too.
void CudaQueue::clear_whole_numbers(const NamedWork& named) {
  for (const Touch& touch : named.touches)
    if (touch.whole_numbers)
      cuda::check(cudaMemsetAsync(const_cast<std::byte*>(touch.begin), 0,
                                  static_cast<std::size_t>(touch.end - touch.begin), stream_),
                  "clearing memory for a trial");
}

double CudaQueue::seconds(const Stretch& stretch) {
  constexpr int runs = 10;
  const auto once = [&] {
    for (const NamedWork& named : stretch.works) clear_whole_numbers(named);
    run(stretch);
  };
  once();
  return Stopwatch(stream_)(once, runs);
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
    if (begun_) note_begun(named, stream);
    work(stream);
  } catch (const Error& error) {
    throw_error(error.code(), "queue '", name_, "', op '", named.op, "', layer ", named.layer, ": ",
                error.what(), begun_ ? running_op() : "");
  }
}

// The stream itself writes which op it begins, where the host can read it after the device has failed:
// waiting here for the op instead would hold up the thread that gives other queues the work that this one may
// wait for.
void CudaQueue::note_begun(const NamedWork& named, Stream stream) {
  driver_.check(driver_.write_value(stream, reinterpret_cast<CUdeviceptr>(begun_.get()),
                                    reinterpret_cast<std::uint64_t>(&named), CU_STREAM_WRITE_VALUE_DEFAULT),
                "noting the op that runs");
}

std::string CudaQueue::running_op() const {
  if (!begun_) return "; set device.name_failed_op = true to learn which op it is";
  const std::uint64_t begun = *static_cast<const volatile std::uint64_t*>(begun_.get());
  if (begun == 0) return "; no op had begun there";
  const auto& named = *reinterpret_cast<const NamedWork*>(begun);  // pieces_ keeps it
  return "; the last op that began there is '" + named.op + "', layer " + std::to_string(named.layer);
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
              "' failed: ", cudaGetErrorString(status), running_op());
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
