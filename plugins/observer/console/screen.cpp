// write(2) and a handful of control sequences.
#include "screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "prun/error.hpp"

namespace prun::console {

namespace {

constexpr int usual_columns = 80;
constexpr std::string_view erase_line = "\r\033[K";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int> columns_from_environment() {
  const std::string_view text = environment("COLUMNS");
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error != std::errc{} || end != text.data() + text.size() || columns <= 0) return std::nullopt;
  return columns;
}

// A descriptor set not to block is waited for.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      throw_error(ErrorCode::storage, "standard output: cannot be written (", std::strerror(errno),
                  "); send it to a file or leave the console observer out");
    }
  }
}

}  // namespace

ScreenSettings screen_settings(int descriptor) {
  ScreenSettings settings;
  settings.descriptor = descriptor;
  settings.terminal = ::isatty(descriptor) == 1 && environment("TERM") != "dumb";
  settings.colour = settings.terminal && environment("NO_COLOR").empty();
  settings.columns = columns_from_environment();
  return settings;
}

Screen::~Screen() {
  try {
    remove_bar();
  } catch (const std::exception&) {
    // Only a bar is left behind; there is nobody to tell while the run unwinds.
  }
}

int Screen::columns() const {
  if (settings_.columns) return *settings_.columns;
  winsize size{};
  const bool known = ::ioctl(settings_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : usual_columns;
}

void Screen::line(std::string_view text, Colour colour) {
  write_all(settings_.descriptor, without_bar() + painted(text, colour) + "\n");
}

void Screen::bar(std::string_view text) {
  if (!settings_.terminal) return;
  const std::string drawn = without_bar() + painted(text, Colour::green);
  bar_shown_ = !text.empty();
  write_all(settings_.descriptor, drawn);
}

void Screen::remove_bar() { write_all(settings_.descriptor, without_bar()); }

std::string Screen::painted(std::string_view text, Colour colour) const {
  if (!settings_.colour || colour == Colour::none || text.empty()) return std::string(text);
  const char* code = colour == Colour::green    ? "\033[32m"
                     : colour == Colour::yellow ? "\033[33m"
                                                : "\033[31m";
  return code + std::string(text) + "\033[0m";
}

std::string Screen::without_bar() {
  if (!bar_shown_) return "";
  bar_shown_ = false;
  return std::string(erase_line);
}

}  // namespace prun::console
