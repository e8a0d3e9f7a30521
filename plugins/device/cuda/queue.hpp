// Is a queue of the device: a stream, and the work that was bound for it.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "branches.hpp"
#include "cuda/graph.hpp"
#include "side_stream.hpp"
#include "stream_room.hpp"

namespace prun::cuda {

// Holds works that follow each other, and the same works as one graph, where that is the faster.
struct Stretch {
  std::vector<NamedWork> works;
  std::unique_ptr<Graph> graph;
  std::int64_t commands = 0;  // counts those it gives the driver, works apart
};
// Is the work of a call.
using Piece = std::vector<Stretch>;

// Says how a stretch is run.
enum class Form { apart, graph, branched };

class CudaQueue {
 public:
  struct Settings {
    bool urgent;     // says that its work goes before that of others
    bool names_ops;  // says to note which op runs, so that an error names it
    bool graphs;     // says that graphs may be used
    // Says that queues wait for what this device does not provide. The driver spreads what a graph has beside
    // one row of kernels, other rows, copies and clearings, over channels that all streams share: graphs that
    // wait then hold copies and kernels of other streams, which may be what they wait for. So graphs have
    // none of those.
    bool others;
  };
  // The device must be current, and the driver must outlive the queue.
  CudaQueue(std::string name, const Settings& settings, const Driver& driver);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  Stream stream() const { return stream_; }
  // The result stays where it is as long as the queue lives.
  Piece& add(std::vector<NamedWork> works);
  void run(const Piece& piece);
  // Must be called before the queue ends, so that libraries may drop what its works had of them.
  void forget_works() { pieces_.clear(); }
  // Holds the caller until the driver takes so many more commands without holding it.
  void make_room(std::int64_t commands);
  // Asks the driver now and then only: a thread that polls must not hold up the one that feeds.
  void check();

  // Returns how many of the tried stretches of several works take each form.
  const std::map<Form, int>& forms() const { return forms_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct FreePinned {
    void operator()(std::uint64_t* number) const { cudaFreeHost(number); }
  };

  void run(const Stretch& stretch);
  void run_works(const Stretch& stretch);
  void run_work(const NamedWork& named, const Work& work, Stream stream);
  void note_begun(const NamedWork& named, Stream stream);
  std::string running_op() const;
  static bool is_small(const Stretch& stretch);
  // Marks works that are to stay out of graphs.
  void keep_to_kernels(std::vector<NamedWork>& works);
  // Takes the form that was found to be the fastest for works of these kinds.
  void choose_form(Stretch& stretch);
  std::unique_ptr<Graph> graph_of(Stretch& stretch, Form form);
  // Returns the seconds that one run takes, when several follow each other.
  double seconds(const Stretch& stretch);
  void clear_whole_numbers(const NamedWork& named);
  void load(Stretch& stretch);
  void try_once(const Stretch& stretch);

  std::string name_;
  Settings settings_;
  const Driver& driver_;
  std::unique_ptr<std::uint64_t, FreePinned> begun_;  // the address of the work that began last
  StreamRoom room_;
  Stream stream_ = nullptr;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::optional<SideStream> side_;             // made when a piece first has branches
  std::map<std::string, Form> known_;          // keyed by the kinds of the works
  std::set<std::string> tried_;                // holds kinds
  std::map<std::string, bool> kernels_alone_;  // keyed by the kind of a work
  std::map<Form, int> forms_;
  std::atomic<Clock::rep> asked_{0};
};

// Says in a few words how many stretches take which form; it is empty where none was tried.
std::string forms_text(const std::vector<std::unique_ptr<CudaQueue>>& queues);

}  // namespace prun::cuda
