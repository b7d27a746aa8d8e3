#include "chat.h"

#include "error.h"
#include "tokenizer.h"
#include "utf8.h"

namespace seqlab {
namespace {

constexpr const char *kStart = "start", *kAnswer = "answer";

std::string_view Stripped(std::string_view text) {
  const std::vector<std::string_view> words = Words(text, false);
  if (words.empty()) return {};
  return {words.front().data(), static_cast<size_t>(words.back().data() + words.back().size() - words.front().data())};
}

}  // namespace

ChatFormat::ChatFormat(const Field& field, int64_t vocab_size) {
  for (const auto& [role, followers] : field["joints"].Members()) {
    for (const auto& [follower, parts] : followers.Members()) {
      std::vector<Part>& joint = joints_[{role, follower}];
      for (const Field& part : parts.Items()) {
        if (part.IsString()) {
          joint.emplace_back(part.String());
          continue;
        }
        const int64_t id = part.Int(0);
        if (id >= vocab_size) Refuse(part.place(), " is ", id, "; accepted: ids of this tokenizer");
        joint.emplace_back(id);
      }
    }
  }
  for (std::string& role : field["stripped"].Strings()) stripped_.insert(std::move(role));
}

Ids ChatFormat::Encode(const Tokenizer& tokenizer, const std::vector<Message>& messages) const {
  Ids ids;
  std::string text;
  const auto end_text = [&] {
    const Ids more = text.empty() ? Ids{} : tokenizer.Encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
    text.clear();
  };
  const auto join = [&](const std::string& role, const std::string& follower) {
    const auto joint = joints_.find({role, follower});
    if (joint == joints_.end()) Refuse("this model's chats have no ", follower, " after ", role);
    for (const Part& part : joint->second) {
      if (const auto* plain = std::get_if<std::string>(&part)) {
        text += *plain;
      } else {
        end_text();
        ids.push_back(std::get<int64_t>(part));
      }
    }
  };
  std::string role = kStart;
  for (const Message& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      Refuse("a message is by \"", message.role.substr(0, 60), "\"; accepted: system, user, assistant");
    }
    join(role, message.role);
    text += stripped_.count(message.role) > 0 ? Stripped(message.content) : message.content;
    role = message.role;
  }
  join(role, kAnswer);
  end_text();
  return ids;
}

}  // namespace seqlab
