// Wraps one UCP worker and its endpoints: it sends and receives tagged messages to and from the members of a
// group. One thread at a time may use it; wake() alone may be called by other threads.
#pragma once

#include <ucp/api/ucp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "prun/error.hpp"

namespace prun::ucx {

// ------------------------------------------------------------------- context
// Wraps UCX itself: there is one context for each plugin object, shared by its communicators. It is made at
// first use, so that a process may fork before.

// Makes a call that fails only if something is wrong with this machine, its limits or UCX. What UCX itself
// says about the failure becomes part of the message.
void check_ucx(const char* action, ErrorCode code, const std::function<ucs_status_t()>& call);

// Returns what a function of UCX prints: it tells of its transports in print alone.
std::string printed(const std::function<void(FILE* out)>& print);

class Context {
 public:
  Context();
  ucp_context_h get() const { return context_.get(); }
  // Returns the transports that UCX can use here: "self", "tcp", "posix".
  std::set<std::string> transports() const;

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
};

// ------------------------------------------------------------------- descriptor
// Holds a file descriptor and closes it at the end.

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

// ------------------------------------------------------------------- wire

struct Transfer;

class TransferListener {
 public:
  // Is called within post_send, post_receive and progress.
  virtual void on_done(Transfer& transfer, ucs_status_t status) noexcept = 0;

 protected:
  ~TransferListener() = default;
};

// Describes one message; it must stay where it is until its listener has been told that it is done.
struct Transfer {
  TransferListener* listener = nullptr;
  void* request = nullptr;  // set while the message is under way
};

class Wire {
 public:
  explicit Wire(std::shared_ptr<Context> context);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire();

  std::vector<std::byte> address() const;
  struct Remote {
    std::vector<std::byte> address;  // empty for the member itself
    // Says whether somebody else finds out when this member ends. If not, UCX must, and then it does without
    // shared memory: that cannot tell, and UCX 1.13 leaves it out.
    bool watched = false;
  };
  void connect(const std::vector<Remote>& remotes);
  // Returns what carries messages to this member once the connection is up: "sysv/memory", "tcp/eth0".
  std::set<std::string> lanes_to(std::int32_t member) const;
  // Limits, once all connections are up, how long TCP waits for an answer.
  void limit_silence(std::chrono::milliseconds limit) const;

  void post_send(std::int32_t member, std::uint64_t tag, const void* data, std::int64_t bytes,
                 Transfer& transfer);
  void post_receive(std::uint64_t tag, void* data, std::int64_t bytes, Transfer& transfer);
  void cancel(Transfer& transfer);

  // Returns whether anything happened.
  bool progress() { return ucp_worker_progress(worker_.get()) != 0; }
  // Returns what UCX says became of the connection to this member.
  ucs_status_t state_of(std::int32_t member) const { return peers_[static_cast<std::size_t>(member)].state; }
  // From now on nobody waits for messages that are still on their way.
  void give_up() { given_up_ = true; }

  // Sleeps until something may have happened, someone calls wake(), or the time is over.
  void sleep(std::chrono::milliseconds limit);
  void wake() noexcept;
  // Lets messages on, and sleeps where there are none, while `waiting` and until `end`.
  template <class Waiting>
  void progress_while(Waiting&& waiting, std::chrono::steady_clock::time_point end) {
    while (waiting() && std::chrono::steady_clock::now() < end)
      if (!progress() && waiting()) sleep(look_again_after);
  }

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t state = UCS_OK;
  };
  struct Destroy {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };

  // A connection may end without a ring of the descriptor, so whoever sleeps looks again after that.
  static constexpr std::chrono::milliseconds look_again_after{2};

  static void done(void* request, ucs_status_t status, void* transfer) noexcept;
  static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t*,
                       void* transfer) noexcept {
    done(request, status, transfer);
  }
  static void lost(void* peer, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  static void settle(Transfer& transfer, ucs_status_ptr_t result);
  void close(Peer& peer);

  std::shared_ptr<Context> context_;
  std::unique_ptr<ucp_worker, Destroy> worker_;
  std::vector<Peer> peers_;
  Descriptor bell_;
  int events_ = -1;
  bool given_up_ = false;
};

}  // namespace prun::ucx
