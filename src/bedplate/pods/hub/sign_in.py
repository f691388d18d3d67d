"""How users sign in: accounts of the hub's own, OAuth, or LTI 1.3, by the real authenticators."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ltiauthenticator.lti13.auth import LTI13Authenticator
from nativeauthenticator import NativeAuthenticator
from nativeauthenticator.handlers import SignUpHandler
from nativeauthenticator.orm import UserInfo
from oauthenticator.generic import GenericOAuthenticator

if TYPE_CHECKING:
    from pathlib import Path

from bedplate.pods.hub import upstream
from bedplate.pods.hub.courses import ENROLLED, GROUP, Settings

PASSWORD: Final = 8
CONTEXT: Final = "https://purl.imsglobal.org/spec/lti/claim/context"


def read(folder: Path, name: str) -> str:
    """Return a secret of the mounted folder."""
    return (folder / name).read_text().strip()


def codes(folder: Path) -> dict[str, str]:
    """Return the enrolment code of each course."""
    return {
        path.name.removeprefix("code-"): path.read_text().strip()
        for path in sorted(folder.glob("code-*"))
    }


class EnrolHandler(SignUpHandler):  # type: ignore[misc]
    """Sign-up with the code that a teacher gives to the class: it says which course."""

    async def post(self) -> None:
        """Refuse a wrong code and a name that the site gives to somebody; then sign up."""
        authenticator = self.authenticator
        given = self.get_body_argument("code", "").strip().upper()
        course = authenticator.course_of(given)
        name = authenticator.normalize_username(self.get_body_argument("username", ""))
        if course is None:
            await self._refuse("This code is of no course. Ask your teacher for it.")
            return
        if name in authenticator.reserved:
            await self._refuse("This name is taken in the course. Choose another.")
            return
        await super().post()
        if UserInfo.find(self.db, name) is None:
            return
        user = self.user_from_username(name)
        upstream.add_to_group(self.db, user, ENROLLED + course)

    async def _refuse(self, message: str) -> None:
        self.set_status(403)
        html = await self.render_template(
            "signup.html",
            ask_email=False,
            result_message=message,
            alert="alert-danger",
            two_factor_auth=False,
            recaptcha_key=None,
            tos=None,
        )
        self.finish(html)


class CourseAuthenticator(NativeAuthenticator):  # type: ignore[misc]
    """Accounts of the hub. Who has a course's code signs up; named users get their passwords."""

    reserved: ClassVar[frozenset[str]] = frozenset()
    enrolment: ClassVar[dict[str, str]] = {}
    accounts: ClassVar[dict[str, str]] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for name, password in self.accounts.items():
            self._account(name, password)

    def _account(self, name: str, password: str) -> None:
        """Make the account of a user whom the site names; a changed password stays."""
        if UserInfo.find(self.db, name) is not None:
            return
        made = self.create_user(name, password)
        if made is not None and not made.is_authorized:
            UserInfo.change_authorization(self.db, name)

    def course_of(self, code: str) -> str | None:
        """Return the course of an enrolment code."""
        found = None
        for course, own in self.enrolment.items():
            if hmac.compare_digest(own.encode(), code.encode()):
                found = course
        return found

    def get_handlers(self, app: Any) -> list[tuple[str, Any]]:
        """Return the upstream pages with our sign-up in place of theirs."""
        upstream = super().get_handlers(app)
        return [(path, EnrolHandler if path == r"/signup" else one) for path, one in upstream]


def configure(c: Any, found: Settings, secrets: Path) -> None:
    """Set the authenticator of the site's choice."""
    {"native": _native, "oauth": _oauth, "lti": _lti}[found.sign_in](c, found, secrets)


def _native(c: Any, found: Settings, secrets: Path) -> None:
    c.JupyterHub.authenticator_class = CourseAuthenticator
    CourseAuthenticator.reserved = frozenset(found.named())
    CourseAuthenticator.enrolment = codes(secrets)
    CourseAuthenticator.accounts = {
        path.name.removeprefix("account-"): path.read_text().strip()
        for path in sorted(secrets.glob("account-*"))
    }
    # The code is the permission: who signs up with it is in.
    c.NativeAuthenticator.open_signup = True
    c.NativeAuthenticator.minimum_password_length = PASSWORD
    c.NativeAuthenticator.check_common_password = True
    c.NativeAuthenticator.allowed_failed_logins = 5
    c.NativeAuthenticator.seconds_before_next_try = 60
    c.Authenticator.allow_all = True
    c.Authenticator.admin_users = set(found.admins)


def _groups(found: Settings) -> set[str]:
    return {
        one.removeprefix(GROUP)
        for course in found.courses.values()
        for one in (*course.members, *course.teachers)
        if one.startswith(GROUP)
    }


def _members(c: Any, found: Settings, *, groups: bool) -> None:
    """Let in whom a course lists: by name, and by group where the sign-in says groups."""
    c.Authenticator.allowed_users = found.named()
    c.Authenticator.admin_users = {one for one in found.admins if not one.startswith(GROUP)}
    if not groups:
        return
    c.Authenticator.enable_auth_state = True
    c.Authenticator.manage_groups = True
    c.OAuthenticator.allowed_groups = _groups(found)
    c.OAuthenticator.admin_groups = {
        one.removeprefix(GROUP) for one in found.admins if one.startswith(GROUP)
    }


def _oauth(c: Any, found: Settings, secrets: Path) -> None:
    given = found.sign_in_settings
    c.JupyterHub.authenticator_class = GenericOAuthenticator
    c.GenericOAuthenticator.client_id = given["client_id"]
    c.GenericOAuthenticator.client_secret = read(secrets, "oauth-client-secret")
    c.GenericOAuthenticator.authorize_url = given["authorize_url"]
    c.GenericOAuthenticator.token_url = given["token_url"]
    c.GenericOAuthenticator.userdata_url = given["userdata_url"]
    c.GenericOAuthenticator.oauth_callback_url = f"{given['url'].rstrip('/')}/hub/oauth_callback"
    c.GenericOAuthenticator.username_claim = given["username"]
    c.GenericOAuthenticator.scope = given["scopes"]
    if given.get("groups"):
        c.GenericOAuthenticator.auth_state_groups_key = f"oauth_user.{given['groups']}"
    _members(c, found, groups=bool(given.get("groups")))


class CourseLti(LTI13Authenticator):  # type: ignore[misc]
    """LTI 1.3, where the label of the platform's course is a group of who comes from it."""

    groups: ClassVar[set[str]] = set()

    async def authenticate(self, handler: Any, data: dict[str, Any] | None = None) -> Any:
        """Return who it is, with the group."""
        found = await super().authenticate(handler, data)
        label = (data or {}).get(CONTEXT, {}).get("label")
        return {**found, "groups": [label] if label else []}

    async def check_allowed(self, username: str, auth_model: Any) -> bool:
        """Let in by name, or by a group that a course lists."""
        mine = set((auth_model or {}).get("groups") or [])
        return username in self.allowed_users or bool(mine & self.groups)


def _lti(c: Any, found: Settings, _: Path) -> None:
    given = found.sign_in_settings
    c.JupyterHub.authenticator_class = CourseLti
    CourseLti.groups = _groups(found)
    c.LTI13Authenticator.issuer = given["issuer"]
    c.LTI13Authenticator.authorize_url = given["authorize_url"]
    c.LTI13Authenticator.client_id = set(given["client_ids"])
    c.LTI13Authenticator.jwks_endpoint = given["keys_url"]
    c.LTI13Authenticator.username_key = given["username"]
    _members(c, found, groups=True)
