// Makes the calls to UCP.
#include "wire.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <ucs/debug/log_def.h>
#include <cstdarg>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>

// ------------------------------------------------------------------- context
// Configures UCX: the user's environment comes first, then what this plugin needs.

// The function is exported by libucs, and declared in a header that is not installed.
extern "C" void ucs_debug_disable_signals();

namespace prun::ucx {
namespace {

// UCX takes over SIGSEGV and the like when it is loaded. Reports of crashes are prun's; UCX's are left in
// place if the user asks for them.
__attribute__((constructor)) void give_signals_back() {
  if (!std::getenv("UCX_HANDLE_ERRORS")) ucs_debug_disable_signals();
}

struct Setting {
  const char* variable;
  const char* name;  // for ucp_config_modify: a transport's own settings go without its prefix there
  const char* value;
};

constexpr Setting settings[] = {
    // These settings decide how soon a peer behind a network that fell silent is given up.
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "1s"},
    {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "2s"},
    {"UCX_TCP_KEEPINTVL", "KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "KEEPCNT", "3"},
    // Shared memory gets so many buffers at a time: as many as its queue is long, and the one that comes
    // next. With one less a second lot is made at once; UCX's own 512 take 4 MiB a communicator from the
    // start.
    {"UCX_MM_RX_BUFS_GROW", "MM_RX_BUFS_GROW", "65"}};

// Keeps UCX's first error in this thread while this lives: what UCX says later follows from that, and its
// status alone does not tell which limit was met.
class Complaint {
 public:
  Complaint() { current_ = this; }
  ~Complaint() { current_ = nullptr; }
  Complaint(const Complaint&) = delete;
  Complaint& operator=(const Complaint&) = delete;

  const std::string& text() const { return text_; }

  static ucs_log_func_rc_t take(const char*, unsigned, const char*, ucs_log_level_t level,
                                const ucs_log_component_config_t*, const char* format, va_list arguments) {
    if (!current_ || level > UCS_LOG_LEVEL_ERROR) return UCS_LOG_FUNC_RC_CONTINUE;
    std::array<char, 400> text{};
    std::vsnprintf(text.data(), text.size(), format, arguments);
    if (current_->text_.empty()) current_->text_ = text.data();
    return UCS_LOG_FUNC_RC_STOP;
  }

 private:
  static thread_local Complaint* current_;
  std::string text_;
};

thread_local Complaint* Complaint::current_ = nullptr;

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ReleaseConfig>;

Config read_config() {
  ucp_config_t* raw = nullptr;
  check_ucx("read its configuration", ErrorCode::unsupported,
            [&] { return ucp_config_read(nullptr, nullptr, &raw); });
  Config config(raw);
  for (const Setting& setting : settings)
    if (!std::getenv(setting.variable))
      check_ucx("take a setting", ErrorCode::unsupported,
                [&] { return ucp_config_modify(raw, setting.name, setting.value); });
  return config;
}

}  // namespace

void check_ucx(const char* action, ErrorCode code, const std::function<ucs_status_t()>& call) {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(&Complaint::take); });
  const Complaint complaint;
  const ucs_status_t status = call();
  if (status == UCS_OK) return;
  const std::string reason = complaint.text().empty() ? "check the UCX_ variables of the environment"
                                                      : "UCX says: " + complaint.text();
  throw_error(code, "UCX could not ", action, ": ", ucs_status_string(status), "; ", reason);
}

Context::Context() {
  const Config config = read_config();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "prun";
  ucp_context_h context = nullptr;
  check_ucx("start", ErrorCode::unsupported, [&] { return ucp_init(&params, config.get(), &context); });
  context_.reset(context);
}

std::string printed(const std::function<void(FILE* out)>& print) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const out = ::open_memstream(&text, &size);
  if (!out) throw_error(ErrorCode::unsupported, "no memory for what UCX prints");
  print(out);
  std::fclose(out);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return {text, size};
}

// Reads lines such as "resource 3  :  md 2  dev 1  flags -- tcp/eth0".
std::set<std::string> Context::transports() const {
  std::set<std::string> found;
  std::istringstream lines(printed([&](FILE* out) { ucp_context_print_info(context_.get(), out); }));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t slash = line.rfind('/'), blank = line.rfind(' ', slash);
    if (line.find("resource") == std::string::npos || slash == std::string::npos ||
        blank == std::string::npos)
      continue;
    found.insert(line.substr(blank + 1, slash - blank - 1));
  }
  return found;
}

}  // namespace prun::ucx

namespace prun::ucx {
namespace {

// ------------------------------------------------------------------- silence
// Limits how long a TCP connection may go without an answer.
// /proc/self/fdinfo/N of an epoll descriptor names what it watches: `tfd: M events: ...`, one a line.

constexpr int deepest = 4;  // bounds how far epoll watches epoll

void limit_within(int epoll, unsigned milliseconds, int depth) {
  std::ifstream watched("/proc/self/fdinfo/" + std::to_string(epoll));
  for (std::string line; std::getline(watched, line);) {
    if (line.rfind("tfd:", 0) != 0) continue;
    const int file = std::stoi(line.substr(4));
    // Any file but a TCP socket refuses this.
    ::setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    if (depth < deepest) limit_within(file, milliseconds, depth + 1);
  }
}

// Sets TCP_USER_TIMEOUT of every TCP socket that this epoll descriptor watches, itself or through others. UCX
// 1.13 has no setting for it. Without it, data sent over a dead link keeps the connection up for a quarter of
// an hour, and keepalive does not ask as long as something waits for its acknowledgement.
void limit_silence(int epoll, std::chrono::milliseconds limit) {
  limit_within(epoll, static_cast<unsigned>(limit.count()), 0);
}

// ------------------------------------------------------------------- wire

constexpr std::uint64_t whole_tag = ~std::uint64_t{0};
constexpr std::chrono::milliseconds closing_limit{500};

}  // namespace

Wire::Wire(std::shared_ptr<Context> context)
    : context_(std::move(context)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_.number() < 0)
    throw_error(ErrorCode::unsupported,
                "comm ucx: cannot make a descriptor to wake by: ", std::strerror(errno),
                "; raise the limit on open files (ulimit -n)");
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  check_ucx("make a worker", ErrorCode::unsupported,
            [&] { return ucp_worker_create(context_->get(), &params, &worker); });
  worker_.reset(worker);
  check_ucx("give a descriptor to wait on", ErrorCode::unsupported,
            [&] { return ucp_worker_get_efd(worker, &events_); });
}

Wire::~Wire() {
  for (Peer& peer : peers_) close(peer);
}

std::vector<std::byte> Wire::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check_ucx("give its address", ErrorCode::unsupported,
            [&] { return ucp_worker_get_address(worker_.get(), &address, &size); });
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + size);
  ucp_worker_release_address(worker_.get(), address);
  return copy;
}

void Wire::connect(const std::vector<Remote>& remotes) {
  peers_.resize(remotes.size());
  for (std::size_t i = 0; i < remotes.size(); ++i) {
    if (remotes[i].address.empty()) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(remotes[i].address.data());
    params.err_mode = remotes[i].watched ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {&Wire::lost, &peers_[i]};
    const std::string action = "connect to member " + std::to_string(i);
    check_ucx(action.c_str(), ErrorCode::comm_failed,
              [&] { return ucp_ep_create(worker_.get(), &params, &peers_[i].endpoint); });
  }
}

// Reads lines such as "lane[0]:  3:sysv/memory.0 md[2]  -> md[2]/sysv/sysdev[255] am am_bw#0"; what looks
// after the connection alone carries no message.
std::set<std::string> Wire::lanes_to(std::int32_t member) const {
  std::set<std::string> found;
  std::istringstream lines(
      printed([&](FILE* out) { ucp_ep_print_info(peers_[static_cast<std::size_t>(member)].endpoint, out); }));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t lane = line.find("lane["), colon = line.find(':', line.find("]:", lane) + 2);
    const bool carries = line.find(" am") != std::string::npos || line.find(" rma") != std::string::npos;
    if (lane == std::string::npos || colon == std::string::npos || !carries) continue;
    const std::string name = line.substr(colon + 1, line.find(' ', colon) - colon - 1);
    found.insert(name.substr(0, name.rfind('.')));
  }
  return found;
}

void Wire::limit_silence(std::chrono::milliseconds limit) const { ucx::limit_silence(events_, limit); }

void Wire::post_send(std::int32_t member, std::uint64_t tag, const void* data, std::int64_t bytes,
                     Transfer& transfer) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = &Wire::done;
  param.user_data = &transfer;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  settle(transfer, ucp_tag_send_nbx(peers_[static_cast<std::size_t>(member)].endpoint, data,
                                    static_cast<std::size_t>(bytes), tag, &param));
}

void Wire::post_receive(std::uint64_t tag, void* data, std::int64_t bytes, Transfer& transfer) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv = &Wire::received;
  param.user_data = &transfer;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  settle(transfer,
         ucp_tag_recv_nbx(worker_.get(), data, static_cast<std::size_t>(bytes), tag, whole_tag, &param));
}

void Wire::settle(Transfer& transfer, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_PTR(result))
    transfer.request = result;
  else
    transfer.listener->on_done(transfer, UCS_PTR_STATUS(result));
}

void Wire::done(void* request, ucs_status_t status, void* data) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(data);
  transfer.request = nullptr;
  ucp_request_free(request);
  transfer.listener->on_done(transfer, status);
}

void Wire::lost(void* data, ucp_ep_h, ucs_status_t status) noexcept {
  static_cast<Peer*>(data)->state = status;
}

void Wire::cancel(Transfer& transfer) {
  if (transfer.request) ucp_request_cancel(worker_.get(), transfer.request);
}

void Wire::sleep(std::chrono::milliseconds limit) {
  if (ucp_worker_arm(worker_.get()) != UCS_OK) return;  // a message came in between
  std::array<pollfd, 2> files{pollfd{events_, POLLIN, 0}, pollfd{bell_.number(), POLLIN, 0}};
  ::poll(files.data(), files.size(), static_cast<int>(limit.count()));
}

void Wire::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.number(), &one, sizeof one);
}

// Gives messages on their way a little time: with a peer that died, they would hold this for ever.
void Wire::close(Peer& peer) {
  if (!peer.endpoint) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  if (given_up_ || peer.state != UCS_OK) param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t closing = ucp_ep_close_nbx(peer.endpoint, &param);
  if (!UCS_PTR_IS_PTR(closing)) return;
  const auto end = std::chrono::steady_clock::now() + closing_limit;
  progress_while([&] { return ucp_request_check_status(closing) == UCS_INPROGRESS; }, end);
  ucp_request_free(closing);
}

}  // namespace prun::ucx
