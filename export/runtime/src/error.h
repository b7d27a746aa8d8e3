// Errors inside the library: they are thrown as a Refusal, and `Guarded` turns them into values for the caller.
#ifndef SEQLAB_ERROR_H_
#define SEQLAB_ERROR_H_

#include <exception>
#include <iomanip>
#include <locale>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "seqlab/runtime.h"

namespace seqlab {

// A failure and its message, which is one sentence. Without a code, an argument of the caller is wrong.
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(const std::string& message, StatusCode code = StatusCode::kInvalidArgument)
      : std::runtime_error(message), code_(code) {}

  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

// Returns a stream that writes numbers alike in every locale of the host program.
inline std::ostringstream ClassicStream() {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  return text;
}

// Joins the parts of a sentence.
template <typename... Parts>
std::string Join(const Parts&... parts) {
  std::ostringstream text = ClassicStream();
  (text << ... << parts);
  return text.str();
}

// Lists items as "a, b, c".
template <typename Items>
std::string Listed(const Items& items) {
  std::string text;
  for (const auto& item : items) text += Join(text.empty() ? "" : ", ", item);
  return text;
}

// Formats a number as 1.23e-04.
inline std::string Scientific(double number) {
  std::ostringstream text = ClassicStream();
  text << std::scientific << std::setprecision(2) << number;
  return text.str();
}

// Throws Refusal with the message that the parts make.
template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw Refusal(Join(parts...));
}

template <typename... Parts>
[[noreturn]] void Refuse(StatusCode code, const Parts&... parts) {
  throw Refusal(Join(parts...), code);
}

// True for the message with which onnxruntime reports that an allocation failed, on any device.
inline bool IsOutOfMemory(std::string_view message) {
  return message.find("Failed to allocate memory") != message.npos || message.find("out of memory") != message.npos;
}

// Returns the value of `run` as a Result, or a Status if it is void. An exception becomes a failure.
template <typename Run>
auto Guarded(Run&& run) -> std::conditional_t<std::is_void_v<decltype(run())>, Status, Result<decltype(run())>> {
  try {
    if constexpr (std::is_void_v<decltype(run())>) {
      run();
      return Status();
    } else {
      return run();
    }
  } catch (const Refusal& refusal) {
    return Status(refusal.code(), refusal.what());
  } catch (const std::exception& error) {
    const bool out_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr || IsOutOfMemory(error.what());
    if (out_of_memory) return Status(StatusCode::kOutOfMemory, "there is not enough memory");
    return Status(StatusCode::kInternal, error.what());
  } catch (...) {
    return Status(StatusCode::kInternal, "an exception was thrown that is not a std::exception");
  }
}

}  // namespace seqlab

#endif  // SEQLAB_ERROR_H_
